"""The command line as a whole: what it lists, and what a command imports."""

import subprocess
import sys
from importlib import import_module

import pytest
import typer
from typer.testing import CliRunner

from millrace.cli import app
from millrace.cli.commands import COMMANDS, Later

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


def test_the_version_is_said() -> None:
    said = CliRunner().invoke(app, ["--version"])
    assert said.exit_code == 0
    assert said.output.startswith("millrace 0.")


def test_a_stack_may_be_named_before_the_command(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MILLRACE_STACK", "local")
    named = CliRunner().invoke(app, ["--stack", "dev", "hosts"])
    assert named.output == CliRunner().invoke(app, ["hosts"], env={"MILLRACE_STACK": "dev"}).output
    assert named.output


def test_a_shell_completes_commands_and_their_options() -> None:
    def completed(words: str) -> str:
        environment = {
            "_MILLRACE_COMPLETE": "complete_bash",
            "COMP_WORDS": words,
            "COMP_CWORD": str(len(words.split(" ")) - 1),
        }
        return CliRunner().invoke(app, prog_name="millrace", env=environment).output

    assert completed("millrace sta").split() == ["status"]
    assert completed("millrace jobs dis").split() == ["disable"]
    assert "--json" in completed("millrace status --j")
