"""The command line as a whole: what it lists, and what a command imports."""

import socket
import subprocess
import sys
from importlib import import_module
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.testing import CliRunner

from millrace.cli import app
from millrace.cli.commands import COMMANDS, Later
from millrace.common import version
from millrace.common.paths import stack_name
from millrace.hosts import commands as host_commands
from millrace.plan import load_plan
from tests.unit.typed import every_command, options

CLIENTS = ["cassandra", "confluent_kafka", "httpx", "kazoo", "redis"]
HEAVY = [*CLIENTS, "numpy", "pulumi", "pyspark", "pydantic", "yaml"]
ROOMS = ["audit", "cluster", "drill", "hosts", "ledger", "plan", "replay", "setup", "support"]
LATER = list(typer.main.get_group(app).commands.items())

HELP = """
import sys
from millrace.cli import main
sys.argv = ["millrace", "--help"]
try:
    main()
finally:
    print(*sys.modules, file=sys.stderr)
"""
STATUS = """
import sys
from millrace.cli import main
from millrace.status import collect

def stop(plan, **how):
    raise SystemExit

collect.collect = stop
sys.argv = ["millrace", "status"]
try:
    main()
finally:
    print(*sys.modules, file=sys.stderr)
"""


def imported(program: str) -> set[str]:
    """The modules that a program has imported when it ends."""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return set(done.stderr.splitlines()[-1].split())


def test_a_list_of_commands_imports_none_of_them() -> None:
    found = imported(HELP)
    assert not found & {*HEAVY, *(f"millrace.{room}" for room in ROOMS)}


def test_status_imports_nothing_of_drills_audits_or_replays() -> None:
    found = imported(STATUS)
    assert "millrace.status.verdict" in found
    assert not found & {
        *(f"millrace.{room}" for room in ("audit", "drill", "ledger", "replay", "support")),
        *("millrace.cli.dead_letters", "millrace.cli.demo", "pulumi", "pyspark"),
    }


@pytest.mark.parametrize(("name", "later"), LATER, ids=[name for name, _ in LATER])
def test_the_list_says_of_a_command_what_it_says_of_itself(name: str, later: Later) -> None:
    command = later.load()
    assert command.name == name
    said = " ".join(command.help.partition("\n\n")[0].split())
    assert said == later.help


def test_each_command_is_listed_once_and_with_what_it_does() -> None:
    listed = [name for places in COMMANDS.values() for name in places]
    assert len(listed) == len(set(listed))
    assert listed == [name for name, _ in LATER]
    shown = " ".join(CliRunner().invoke(app, ["--help"]).output.replace("│", " ").split())
    for places in COMMANDS.values():
        for name, place in places.items():
            assert f"{name} {place.summary}" in shown


def test_every_room_s_commands_are_listed() -> None:
    """A `Typer` or a `…_command` that nobody can type would be dead."""
    places = {(place.module, place.name) for group in COMMANDS.values() for place in group.values()}
    for module in {module for module, _ in places}:
        found = import_module(module)
        if not hasattr(found, "app"):
            defined = {
                name
                for name, what in vars(found).items()
                if name.endswith("_command") and what.__module__ == module
            }
            assert defined <= {name for place, name in places if place == module}


def test_the_version_is_said_with_the_commit_where_there_is_one(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    said = CliRunner().invoke(app, ["--version"])
    assert said.exit_code == 0
    assert said.output.startswith("millrace 0.")
    git = ["git", "-c", "user.name=x", "-c", "user.email=x@example.org", "-C", str(tmp_path)]
    monkeypatch.setattr(version, "REPO", tmp_path)
    monkeypatch.setenv("GIT_CEILING_DIRECTORIES", str(tmp_path.parent))
    assert version.commit() is None
    subprocess.run([*git, "init", "-q"], check=True)
    subprocess.run([*git, "commit", "-q", "--allow-empty", "-m", "x"], check=True)
    assert version.described() == f"0.1.0 ({version.commit()})"
    monkeypatch.setenv("PATH", str(tmp_path))  # without git
    assert version.described() == "0.1.0"


def test_a_stack_is_named_before_the_command_by_the_variable_or_is_local(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    acted_on: list[str] = []

    def load(name: str) -> Any:
        acted_on.append(name)
        assert stack_name() == name  # what the command starts acts on the same
        return load_plan(name)

    monkeypatch.setattr(host_commands, "load_plan", load)
    for variable, typed in (("dev", []), ("dev", ["--stack", "static"]), ("", [])):
        monkeypatch.setenv("MILLRACE_STACK", variable)
        assert CliRunner().invoke(app, [*typed, "hosts"]).exit_code == 0
    assert acted_on == ["dev", "static", "local"]


def completed(words: str) -> list[str]:
    environment = {
        "_MILLRACE_COMPLETE": "complete_bash",
        "COMP_WORDS": words,
        "COMP_CWORD": str(len(words.split(" ")) - 1),
    }
    return CliRunner().invoke(app, prog_name="millrace", env=environment).output.split()


def test_a_shell_completes_commands_and_their_options() -> None:
    assert completed("millrace sta") == ["status"]
    assert completed("millrace jobs dis") == ["disable"]
    assert "--json" in completed("millrace status --j")


@pytest.mark.parametrize(
    ("words", "names"),
    [
        ("millrace --stack s", ["staging", "static"]),
        ("millrace jobs disable ses", ["sessions"]),
        ("millrace audit --job ses", ["sessions"]),
        ("millrace host kill redis-", ["redis-1", "redis-2", "redis-3"]),
        ("millrace host kill redis-1 edge-", ["edge-1", "edge-2"]),
        ("millrace --stack dev on coord-", ["coord-1", "coord-2", "coord-3"]),
        ("millrace logs --group k", ["kafka"]),
        ("millrace logs --service dr", ["driver"]),
        ("millrace hosts --zone ", ["a", "b", "c"]),
        ("millrace drill run driver-k", ["driver-killed"]),
        ("millrace load-large --stream c", ["clicks"]),
        ("millrace table show c", ["campaigns"]),
        ("millrace who kafka-l", ["kafka-leader"]),
        ("millrace playbook site", ["site.yml"]),
        ("millrace --stack nowhere jobs disable ", []),
    ],
)
def test_a_shell_completes_names_of_the_plan_and_asks_nobody(
    monkeypatch: pytest.MonkeyPatch, words: str, names: list[str]
) -> None:
    monkeypatch.setattr(socket.socket, "connect", lambda *_: pytest.fail("it asked"))
    monkeypatch.setattr(subprocess.Popen, "__init__", lambda *_, **__: pytest.fail("it asked"))
    assert completed(words) == names


@pytest.mark.parametrize("kind", ["job", "jobs", "host", "hosts", "stream", "table", "service"])
def test_whatever_is_a_name_of_the_plan_is_completed(kind: str) -> None:
    """Of parameters that are called so."""
    without = [
        path
        for path, command in every_command().items()
        for parameter in command.params
        if parameter.name == kind and parameter._custom_shell_complete is None
    ]
    assert without == []


# Who prints no table: words, a file, lines that are made for programs, or what an engine says.
WITHOUT_TABLES = {
    *("setup", "preflight", "env", "down", "demo", "up", "deploy", "upgrade", "playbook"),
    *("suspend", "resume", "jobs disable", "jobs enable", "jobs skip"),
    *("table remove", "replay", "send", "generate", "load-large", "drill show"),
    *("who", "hosts", "on", "host", "await", "support-bundle", "alerts", "dashboards"),
    *("lock", "docs", "keys add", "keys rotate", "keys revoke", "api"),
}


def test_every_command_that_prints_a_table_prints_json_as_well() -> None:
    """`ruff` lets only `millrace.common.tables` make tables, and that takes the option's value."""
    without = {
        path for path, command in every_command().items() if "--json" not in options(command)
    }
    assert without == WITHOUT_TABLES
