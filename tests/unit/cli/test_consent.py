"""What destroys or interrupts asks first: somebody at a terminal, or it is told --yes."""

import re
import socket
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from millrace.cli import app, operations
from millrace.cli.playbook import STOP_A_HOST
from millrace.common import consent, paths
from millrace.common.consent import agree
from millrace.common.errors import OperatorError
from millrace.common.paths import ANSIBLE
from millrace.drill.runbook import RUNBOOKS
from millrace.hosts.power import BREAK, Action
from millrace.plan import load_plan
from tests.run import CLUSTER, MORE
from tests.unit.typed import every_command, options

# What each is asked with here.
ASK = {
    "down": "",
    "suspend": "",
    "playbook": "release-host.yml -- --extra-vars host=kafka-1",
    "host": "kill kafka-1",
    "jobs disable": "sessions",
    "jobs skip": "sessions --partition 0 --from 1 --to 2 --why x",
    "reconcile": "sessions --switch",
    "table remove": "campaigns campaign=spring",
    "keys revoke": "shop",
    "load-large": "",
    "drill run": "driver-killed",
    "drill all": "",
    "drill random": "",
}
# They ask where making hosts costs money or data: tests/unit/cli/test_approval.py.
ASK_IN_A_CLOUD = {"up", "deploy", "upgrade", "demo"}
# They look, add, send, go on or undo.
NEVER_ASK = {
    *("status", "insights", "versions", "jobs", "jobs list", "jobs check", "jobs skips"),
    *("table list", "table show", "dead-letters list", "dead-letters show", "drill list"),
    *("drill show", "audit", "ledger", "why", "who", "hosts", "await", "logs", "support-bundle"),
    *("plan", "capacity", "alerts", "dashboards", "preflight", "env", "on"),
    *("setup", "lock", "docs", "generate", "replay", "send", "load", "advertise"),
    *("resume", "jobs enable", "table put", "dead-letters retry"),
    *("keys list", "keys add", "keys rotate", "api"),
}


def test_of_every_command_it_is_decided_whether_it_asks() -> None:
    commands = every_command()
    assert sorted(commands) == sorted([*ASK, *ASK_IN_A_CLOUD, *NEVER_ASK])
    with_yes = {path for path, command in commands.items() if "--yes" in options(command)}
    assert with_yes == {*ASK, *ASK_IN_A_CLOUD}


@pytest.fixture
def untouched(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever calls a host, a service or a program of this machine fails."""

    def touch(*_: Any, **__: Any) -> None:
        pytest.fail("it was touched")

    monkeypatch.setattr(socket.socket, "connect", touch)
    monkeypatch.setattr(subprocess.Popen, "__init__", touch)


@pytest.mark.usefixtures("untouched")
@pytest.mark.parametrize(("command", "arguments"), ASK.items(), ids=ASK)
def test_without_a_terminal_and_a_word_nothing_is_touched(command: str, arguments: str) -> None:
    done = CliRunner().invoke(app, [*command.split(), *arguments.split()])
    assert isinstance(done.exception, OperatorError)
    assert "nothing was created or changed" in done.exception.message
    assert done.exception.hint == "--yes says so"


@pytest.mark.usefixtures("untouched")
@pytest.mark.parametrize(("command", "arguments"), ASK.items(), ids=ASK)
def test_who_says_no_at_the_terminal_is_obeyed(
    monkeypatch: pytest.MonkeyPatch, command: str, arguments: str
) -> None:
    asked: list[str] = []
    monkeypatch.setattr(consent.sys, "stdin", SimpleNamespace(isatty=lambda: True))
    monkeypatch.setattr(typer, "confirm", lambda question, **_: asked.append(question))
    with pytest.raises(OperatorError, match="nothing was created or changed"):
        app([*command.split(), *arguments.split()])
    assert len(asked) == 1
    assert "local" in asked[0]  # of which stack


def test_a_word_or_a_yes_lets_it_be(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(typer, "confirm", lambda *_, **__: pytest.fail("it asked"))
    agree("Really?", yes=True)
    asked: list[str] = []
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(isatty=lambda: True))
    monkeypatch.setattr(typer, "confirm", lambda question, **_: asked.append(question) or True)
    agree("Remove [/x]\x1b[2J?", yes=False)
    assert asked == ["Remove [/x]␛[2J?"]


@pytest.mark.usefixtures("untouched")
@pytest.mark.parametrize("action", [action for action in Action if action not in BREAK])
def test_what_undoes_asks_nobody(monkeypatch: pytest.MonkeyPatch, action: Action) -> None:
    done: list[Action] = []
    monkeypatch.setattr("millrace.hosts.commands.act", lambda _, action, __: done.append(action))
    assert CliRunner().invoke(app, ["host", action, "kafka-1"]).exit_code == 0
    assert done == [action]


def test_playbooks_that_stop_a_host_are_there() -> None:
    assert all((ANSIBLE / "playbooks" / name).exists() for name in STOP_A_HOST)


def test_what_a_purge_removes_is_named_secrets_one_by_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    folder = tmp_path / ".millrace" / "static"
    for name in ("secrets/collector-shop", "secrets/pager", "ssh_key", "hosts", "ledgers/one/x"):
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_text("x")
    monkeypatch.setattr(paths, "STATE", tmp_path / ".millrace")
    *_, secrets, records = operations.going(load_plan("static"), purge=True)
    assert secrets == (
        "go: secrets on this machine: .millrace/static/secrets/collector-shop,"
        " .millrace/static/secrets/pager, .millrace/static/ssh_key"
    )
    assert (
        records == "go: records on this machine: .millrace/static/hosts, .millrace/static/ledgers"
    )


@pytest.mark.parametrize(
    ("stack", "purge", "said"),
    [
        ("local", False, ["go: the hosts, and", "stay: the volumes"]),
        ("local", True, ["go: the hosts, and", "go, with ALL THEIR DATA: the volumes"]),
        ("dev", True, ["go, with ALL THEIR DATA: the archive's bucket"]),
        ("static", False, ["stay: the machines, and what is on them: coord-1"]),
    ],
)
def test_what_goes_is_told_from_what_stays(stack: str, purge: bool, said: list[str]) -> None:
    lines = list(operations.going(load_plan(stack), purge=purge))
    assert all(any(line.startswith(begin) for line in lines) for begin in said)
    assert any("state" in line for line in lines) is purge


FENCE = re.compile(r"^```sh.*?^```", re.MULTILINE | re.DOTALL)
ASKING = re.compile(
    rf"millrace (host ({'|'.join(BREAK)})|playbook ({'|'.join(STOP_A_HOST)})|down|suspend"
    r"|load-large|jobs (disable|skip)|table remove|drill (run|all|random))\b"
)


@pytest.mark.parametrize("page", sorted(RUNBOOKS.glob("*.md")), ids=lambda page: page.stem)
def test_a_block_that_is_pasted_or_run_by_a_drill_is_not_held_up_by_a_question(page: Path) -> None:
    """What stands below it in a terminal would be its answer."""
    lines = [line for block in FENCE.findall(page.read_text()) for line in block.splitlines()]
    assert [line for line in lines if ASKING.search(line) and "--yes" not in line] == []


def test_the_suite_is_not_held_up_either() -> None:
    lines = [" ".join(["millrace", *stage.command[1:]]) for stage in [*CLUSTER, *MORE]]
    asking = [line for line in lines if ASKING.search(line)]
    assert asking == ["millrace down --purge --yes"]
