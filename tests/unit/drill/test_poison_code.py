"""The drill that brings a job of its own: wherever it stops, the job is taken away again.

The runbook's own blocks run here; the cluster is a few lines of shell.
"""

from dataclasses import dataclass
from pathlib import Path

import pytest

from millrace.config.jobs import load_job_settings
from millrace.config.streams import load_streams
from tests.unit.stand_ins import install, run_drill

RECORDS = 5
STAND_INS = {
    "millrace": """\
echo "${MILLRACE_TRIAL:+trial }$*" >> "$STAGE/calls"
[ "$(wc -l < "$STAGE/calls")" != "$FAILING" ] || exit 1
case $1 in
    deploy)
        rm -rf "$STAGE/deployed"
        [ -z "${MILLRACE_TRIAL:-}" ] || cp -r "$MILLRACE_TRIAL" "$STAGE/deployed"
        [ -z "${MILLRACE_TRIAL:-}" ] || cat "$MILLRACE_TRIAL/shares.sql" >> "$STAGE/versions" ;;
    who) echo "$2-1" ;;
    replay) cat "$2" >> "$STAGE/sent" ;;
    dead-letters)
        case $2 in
            list) sed 's/.*/events-0-7 no/' "$STAGE/sent" ;;
            retry) grep -q nullif "$STAGE/deployed/shares.sql" ;;
        esac ;;
esac
""",
    "sleep": "true",
}


@dataclass(frozen=True)
class Stage:
    folder: Path

    def run(self, failing: int = 0) -> bool:
        """Injects, recovers and rolls back; False if a block failed.

        Args:
            failing: the call of `millrace` that fails.
        """
        return run_drill(
            "poison-code",
            self.folder / "bin",
            STAGE=str(self.folder),
            FAILING=str(failing),
            TMPDIR=str(self.folder / "tmp"),
        )

    @property
    def calls(self) -> list[str]:
        return (self.folder / "calls").read_text().splitlines()

    @property
    def is_clean(self) -> bool:
        return not list((self.folder / "tmp").iterdir()) and not (self.folder / "deployed").exists()


@pytest.fixture
def stage(tmp_path: Path) -> Stage:
    for name in ("bin", "tmp"):
        (tmp_path / name).mkdir()
    (tmp_path / "sent").touch()
    install(STAND_INS, tmp_path / "bin")
    return Stage(tmp_path)


def test_the_job_is_brought_mended_and_taken_away(stage):
    assert stage.run()
    deploys = [call for call in stage.calls if call.endswith("deploy")]
    assert deploys == ["trial deploy", "trial deploy", "deploy"]
    assert stage.is_clean
    sent = (stage.folder / "sent").read_text().splitlines()
    assert len(sent) == RECORDS
    assert all('HTTP/1.1" 599 ' in line for line in sent)
    versions = (stage.folder / "versions").read_text()
    assert versions.count("div (599 - status)") == versions.count("div nullif(") == 1


def test_wherever_it_stops_the_job_is_taken_away(stage):
    stage.run()
    for failing in range(1, len(stage.calls)):
        (stage.folder / "calls").unlink()
        stage.run(failing=failing)
        assert stage.calls[-1] == "deploy", f"call {failing}"
        assert stage.is_clean, f"call {failing}"


def test_its_job_can_be_run(stage, monkeypatch):
    kept = stage.folder / "kept"
    text = (stage.folder / "bin" / "millrace").read_text()
    (stage.folder / "bin" / "millrace").write_text(f"{text}cp -rn $MILLRACE_TRIAL {kept} || true\n")
    stage.run()
    assert load_job_settings(load_streams(), [kept])["shares"]["watermark_seconds"].value == 60
