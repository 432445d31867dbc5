"""`millrace support-bundle`: what is in it, how large it gets, and what must never be."""

import base64
import gzip
import json
import os
import random
import tarfile
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.cluster import facts as cluster_facts
from millrace.cluster import host_facts, ssh
from millrace.cluster import logs as cluster_logs
from millrace.common import paths
from millrace.common.errors import OperatorError
from millrace.config.panels import load_panels
from millrace.plan import Plan, load_plan
from millrace.support import redact
from millrace.support.bundle import Bundle, gather, write
from millrace.support.newest import Newest
from millrace.support.redact import REMOVED, SHORTEST, Redactor, known_secrets
from millrace.support.settings import Settings, load_settings
from tests.unit.stand_ins import install

TOKEN = "tok-3f/9&é q"
BEGIN = f"-----BEGIN OPENSSH {'PRIVATE'} KEY-----"  # in parts: scanners of repositories look for it
KEY = f"{BEGIN}\nb3BlbnNzaC1rZXkt\nQyNTUxOQAAACB1\n-----END"
SECRETS = [TOKEN, KEY.splitlines()[1], KEY.splitlines()[2], "correct-horse", "from-the-environment"]


# --- secrets --------------------------------------------------------------------------------------

TEXTS = st.text(st.characters(exclude_characters=REMOVED, exclude_categories=["Cs"]))


@given(TEXTS, st.lists(TEXTS, min_size=1, max_size=3).map("wxyz\n".join), TEXTS)
def test_no_secret_is_left_however_it_is_written(before: str, secret: str, after: str) -> None:
    taken = Redactor([secret])
    for form in (secret, json.dumps(secret), base64.b64encode(secret.strip().encode()).decode()):
        left = taken(before + form + after)
        for part in {secret.strip(), *map(str.strip, secret.splitlines())}:
            assert len(part) < SHORTEST or part not in left


@given(TEXTS)
def test_a_text_without_a_secret_is_left_alone(text: str) -> None:
    harmless = "".join(c for c in text if c not in ":=@-")
    assert Redactor([])(harmless) == harmless


@pytest.mark.parametrize(
    ("text", "left"),
    [
        ("see https://bob:hunter22@pager/x", f"see https://bob:{REMOVED}@pager/x"),
        ("Authorization: Bearer abc.def-123", f"Authorization: Bearer {REMOVED}"),
        ('{"auth_password": "x y"}', f'{{"auth_password": "{REMOVED} y"}}'),
        ("AWS_SECRET_ACCESS_KEY=abc/def", f"AWS_SECRET_ACCESS_KEY={REMOVED}"),
        (KEY, f"{BEGIN}{REMOVED}-----END"),
        ("credentials_file: pager-token", "credentials_file: pager-token"),
        ("initial_token: 12", "initial_token: 12"),
    ],
)
def test_what_looks_like_a_secret_is_removed(text: str, left: str) -> None:
    assert Redactor([])(text) == left


# --- the newest -----------------------------------------------------------------------------------


@given(st.lists(st.text(max_size=200)), st.integers(min_value=0, max_value=2000))
def test_no_more_than_there_is_room_for_and_only_the_oldest_are_left_out(lines, most) -> None:
    newest = Newest(most, str)
    for n, line in enumerate(lines):
        newest.add(n, line)
    newest.end()
    assert len(newest.content) <= most
    kept = gzip.decompress(newest.content).decode() if newest.content else ""
    added = "".join(line + "\n" for line in lines)
    assert added.endswith(kept)
    assert newest.is_cut == (kept != added)
    if newest.since is not None:
        assert kept == "".join(line + "\n" for line in lines[int(newest.since) :])


# --- what a host hands over -----------------------------------------------------------------------


def test_only_files_that_everybody_may_read_are_handed_over(tmp_path: Path, capsys) -> None:
    for name, mode in (("a.cfg", 0o644), ("b.cfg", 0o640), ("secrets/c", 0o644), ("big", 0o644)):
        path = tmp_path / "etc" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("x" * (200 if name == "big" else 2))
        path.chmod(mode)
    question = {"units": [], "config": f"{tmp_path}/etc", "data": f"{tmp_path}", "most": 100}
    host_facts.main(question | {"secrets": [f"{tmp_path}/etc/secrets"]})
    answer = json.loads(capsys.readouterr().out)
    assert answer["files"] == {f"{tmp_path}/etc/a.cfg": "xx"}
    assert answer["left_out"] == [f"{tmp_path}/etc/big"]
    assert len(answer["facts"]) <= 100


# --- the bundle -----------------------------------------------------------------------------------


@pytest.fixture
def plan(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Plan:
    """A cluster of shells on this machine, half of which are down. All that is asked, and all that
    is kept of the stack, has secrets in it."""
    plan = load_plan("local")
    state = tmp_path / "state"
    (state / "local" / "secrets").mkdir(parents=True)
    (state / "local" / "secrets" / "pager-token").write_text(TOKEN + "\n")
    (state / "local" / "edge.key").write_text(KEY)
    (state / "passphrase").write_text("correct-horse")
    monkeypatch.setattr(paths, "STATE", state)
    monkeypatch.setattr(redact, "STATE", state)
    monkeypatch.setattr(redact, "key_file", lambda _: state / "local" / "edge.key")
    monkeypatch.setenv("PAGER_TOKEN", "from-the-environment")

    programs, etc = tmp_path / "bin", tmp_path / "etc"
    programs.mkdir()
    (etc / "service").mkdir(parents=True)
    (etc / "service" / "service.cfg").write_text(f"one={TOKEN}\ntwo={KEY}\n")
    entry = {"__REALTIME_TIMESTAMP": "1700000001000000", "SYSLOG_IDENTIFIER": "kernel"}
    said = [f"said {secret}" for secret in [*SECRETS, base64.b64encode(TOKEN.encode()).decode()]]
    lines = [json.dumps(entry | {"MESSAGE": text}) for text in said]
    (tmp_path / "journal").write_text("\n".join(lines) + "\n")
    (tmp_path / "figures").write_text(json.dumps({"data": {"result": SECRETS}}))
    install(
        {
            "sudo": 'exec "$@"',
            "journalctl": f"cat {tmp_path}/journal",
            "curl": f"cat {tmp_path}/figures",
            "ps": f"cat {tmp_path}/journal",
        },
        programs,
    )
    monkeypatch.setenv("PATH", f"{programs}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setattr(cluster_facts, "CONFIG_ROOT", str(etc))

    def shell(plan: Plan, host) -> list[str]:
        down = plan.hosts.index(host) % 2
        return ["sh", "-c", "echo no route to host >&2; exit 255"] if down else ["sh", "-c"]

    monkeypatch.setattr(ssh, "ssh_command", shell)
    monkeypatch.setattr(cluster_logs, "ssh_command", shell)
    monkeypatch.setattr(
        "millrace.status.collect.collect", lambda _: {}[SECRETS[0]]
    )  # it fails, too
    return plan


def of(path: Path) -> dict[str, str]:
    """Name below the bundle's folder → text."""
    found = {}
    with tarfile.open(path) as tar:
        for member in tar:
            data = tar.extractfile(member).read()
            name = member.name.partition("/")[2]
            found[name] = (gzip.decompress(data) if name.endswith(".gz") else data).decode()
    return found


def test_it_has_what_half_of_the_hosts_say_and_no_secret(plan: Plan, tmp_path: Path) -> None:
    path = tmp_path / "bundle.tar.gz"
    write(gather(plan, load_settings(), 1_700_000_000, 1_700_000_060), path)
    found = of(path)
    answering = {host.name for host in plan.hosts[::2]}
    assert {name.split("/")[1] for name in found if name.startswith("hosts/")} == answering
    for name in answering:
        assert "said" in found[f"hosts/{name}/log.gz"]
        assert "ActiveState" in found[f"hosts/{name}/facts.txt"]
    assert {f"metrics/{panel.name}.json" for panel in load_panels().panels} <= found.keys()
    assert "metrics/take-over.json" in found
    assert "plan.json" in found
    for host in plan.hosts[1::2]:
        assert f"{host.name}: no route to host" in found["README.txt"]
    assert "status.json: KeyError" in found["README.txt"]
    for name, text in found.items():
        for secret in SECRETS:
            assert secret not in text, name
            assert base64.b64encode(secret.encode()).decode() not in text, name
        assert TOKEN.split()[0] not in text, name
    assert path.stat().st_mode & 0o077 == 0


def test_it_is_no_larger_than_it_may_be_and_says_what_was_cut(
    plan: Plan, tmp_path: Path, monkeypatch
) -> None:
    noise = random.Random(1)
    entry = {"SYSLOG_IDENTIFIER": "kernel"}
    lines = [
        json.dumps(
            entry
            | {"__REALTIME_TIMESTAMP": str((1_700_000_000 * 1000 + n) * 1000)}
            | {"MESSAGE": f"line {n} {noise.randbytes(500).hex()}"}
        )
        for n in range(600)
    ]
    (tmp_path / "journal").write_text("\n".join(lines) + "\n")
    settings = load_settings()
    small = settings.settings | {
        "megabytes": settings.settings["megabytes"].model_copy(update={"value": 2})
    }
    path = tmp_path / "bundle.tar.gz"
    limited = Settings(summary="", settings=small)
    write(gather(plan, limited, 1_700_000_000, 1_700_000_060), path)
    assert path.stat().st_size < 2_000_000
    found = of(path)
    log = found[f"hosts/{plan.hosts[0].name}/log.gz"]
    assert "line 599 " in log
    assert "line 0 " not in log
    assert f"hosts/{plan.hosts[0].name}/log.gz: nothing before 2023-11-14" in found["README.txt"]


def test_the_largest_bundle_is_below_50_megabytes() -> None:
    assert load_settings()["megabytes"] < 50


def test_it_is_written_whole_or_not_at_all(tmp_path: Path, monkeypatch) -> None:
    bundle = Bundle(Redactor([]))
    bundle.add("a.txt", "text")
    with pytest.raises(OperatorError, match="No such file"):
        write(bundle, tmp_path / "nowhere" / "b.tar.gz")
    write(bundle, tmp_path / "b.tar.gz")
    assert of(tmp_path / "b.tar.gz") == {"a.txt": "text"}
    assert [path.name for path in tmp_path.iterdir()] == ["b.tar.gz"]


def test_a_stacks_secrets_are_known_though_no_file_need_be_there(plan: Plan) -> None:
    assert {TOKEN, KEY, "correct-horse"} <= {s.strip() for s in known_secrets(plan, {})}
    assert known_secrets(plan, {"A_TOKEN": "x", "PATH": "y"})[-1] == "x"
