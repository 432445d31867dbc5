"""The drill that restores ZooKeeper from a backup: wherever it stops, no server stays down.

The runbook's own blocks run here; each server is a folder, and its commands a few lines of shell.
"""

from dataclasses import dataclass
from pathlib import Path

import pytest

from tests.unit.stand_ins import install, run_drill

SERVERS = ("coord-1", "coord-2", "coord-3")
STAND_INS = {
    "millrace": """\
tr '\\n' ' ' <<< "$*" >> "$STAGE/calls"
echo >> "$STAGE/calls"
[ "$(wc -l < "$STAGE/calls")" != "$FAILING" ] || exit 1
case $1 in
    hosts) case $3 in zookeeper) printf '%s\\n' coord-1 coord-2 coord-3 ;; *) echo edge-1 ;; esac ;;
    api)
        printf '{"jobs":[{"job":"archive","version":"1","epoch":9},'
        echo '{"job":"traffic","version":"1","epoch":7,"batch":3}]}' ;;
    who) [ "${3:-}" ] && echo the pids || echo worker-1 ;;
    on) export SERVER=$STAGE/$2
        shift 3
        [ "$1" = kill ] || "${@//\\/var\\/lib\\/millrace/$SERVER}" ;;
esac
""",
    # Meanwhile there are more transactions, and another leader is elected.
    "sleep": """\
for server in coord-1 coord-2 coord-3; do
    touch "$STAGE/$server/zookeeper/log/version-2/log.2"
    echo 6 > "$STAGE/$server/zookeeper/version-2/currentEpoch"
done
""",
    "systemctl": """\
case $1 in start) touch "$SERVER/up" ;; stop) rm -f "$SERVER/up" ;; esac
""",
    "zkCli": """\
echo "$*" >> "$STAGE/zkcli"
[ "$1" != get ] || echo "Node does not exist: $2"
""",
}


@dataclass(frozen=True)
class Ensemble:
    folder: Path

    def run(self, failing: int = 0) -> bool:
        """Injects, recovers and rolls back; False if a block failed.

        Args:
            failing: the call of `millrace` that fails.
        """
        return run_drill(
            "zookeeper-restored",
            self.folder / "bin",
            'echo "$EPOCH" > "$STAGE/epoch"',
            STAGE=str(self.folder),
            FAILING=str(failing),
        )

    @property
    def calls(self) -> list[str]:
        return [line.strip() for line in (self.folder / "calls").read_text().splitlines()]

    def files(self, server: str) -> set[str]:
        data = self.folder / server
        return {str(path.relative_to(data)) for path in data.rglob("*") if path.is_file()}


@pytest.fixture
def ensemble(tmp_path: Path) -> Ensemble:
    for server in SERVERS:
        for name in ("up", "zookeeper/version-2/snapshot.1", "zookeeper/log/version-2/log.1"):
            (tmp_path / server / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / server / name).touch()
        (tmp_path / server / "zookeeper/version-2/currentEpoch").write_text("5\n")
    (tmp_path / "bin").mkdir()
    install(STAND_INS, tmp_path / "bin")
    return Ensemble(tmp_path)


def test_every_server_has_the_backups_data_but_not_its_epoch(ensemble):
    assert ensemble.run()
    for server in SERVERS:
        assert ensemble.files(server) == {
            "up",
            "zookeeper/version-2/snapshot.1",
            "zookeeper/version-2/currentEpoch",
            "zookeeper/log/version-2/log.1",
        }
        epoch = ensemble.folder / server / "zookeeper/version-2/currentEpoch"
        assert epoch.read_text() == "6\n"
    assert (ensemble.folder / "epoch").read_text() == "7\n"
    assert ensemble.calls[-1] == "jobs enable traffic"


def test_no_server_starts_before_all_are_stopped(ensemble):
    """One that runs on would give the others its newer data again."""
    ensemble.run()
    stopped = [n for n, call in enumerate(ensemble.calls) if "systemctl stop" in call]
    started = [
        n for n, call in enumerate(ensemble.calls) if call.startswith("on") and "cd " in call
    ]
    assert len(stopped) == 3
    assert max(stopped) < min(started)


def test_wherever_it_stops_every_server_is_up_and_the_copies_are_gone(ensemble):
    ensemble.run()
    undone = len(SERVERS) * 2 + 1  # the rollback's own calls
    for failing in range(1, len(ensemble.calls) - undone + 1):
        (ensemble.folder / "calls").unlink()
        assert not ensemble.run(failing)
        for server in SERVERS:
            files = ensemble.files(server)
            assert "up" in files, f"call {failing}"
            assert not {file for file in files if file.startswith("zookeeper-")}, f"call {failing}"
