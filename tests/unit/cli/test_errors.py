"""What the command line prints when it ends with an error, and the code that it ends with."""

import sys

import pytest
import typer

from millrace.cli import commands
from millrace.common import errors
from millrace.common.errors import OperatorError
from millrace.common.exits import Exit
from millrace.common.paths import REPO


def ended(monkeypatch: pytest.MonkeyPatch, *typed: str) -> object:
    monkeypatch.setattr(sys, "argv", ["millrace", *typed])
    with pytest.raises(SystemExit) as ending:
        commands.main()
    return ending.value.code


def test_an_error_is_printed_as_text_whatever_is_in_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It may quote a line of a log."""

    def fail(**_: object) -> None:
        raise OperatorError("no log: /a[/b] [17/May/2015]", "say [bold]--format[/]")

    monkeypatch.setattr(commands, "app", fail)
    with pytest.raises(SystemExit) as ending:
        commands.main()
    assert ending.value.code == 1
    printed = capsys.readouterr().err
    assert "no log: /a[/b] [17/May/2015]" in printed
    assert "say [bold]--format[/]" in printed


def test_each_kind_of_error_has_a_code_of_its_own() -> None:
    kinds = [
        k for k in vars(errors).values() if isinstance(k, type) and issubclass(k, OperatorError)
    ]
    codes = [kind.exit_code for kind in kinds]
    assert len(kinds) == len(set(codes)) == 5
    assert not {Exit.OK, Exit.USAGE, Exit.STOPPED} & {*codes}


@pytest.mark.parametrize(
    ("raised", "code"),
    [
        (OperatorError("it failed"), 1),
        (errors.NobodyError("no host is driver now"), 3),
        (errors.UnhealthyError("degraded"), 4),
        (errors.UnreachableError("no broker answers"), 5),
        (errors.NotPassedError("a job can't be run"), 6),
        (typer.Exit(Exit.UNHEALTHY), 4),
        (typer.Abort(), 130),
        (KeyboardInterrupt(), 130),
    ],
)
def test_scripts_tell_by_the_code_how_a_command_ended(
    monkeypatch: pytest.MonkeyPatch, raised: BaseException, code: int
) -> None:
    def load(name: str) -> None:
        raise raised

    monkeypatch.setattr("millrace.hosts.commands.load_plan", load)
    assert ended(monkeypatch, "hosts") == code


def test_what_is_typed_wrongly_is_told_as_text_and_leads_to_the_help(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ended(monkeypatch, "who\x1b[2J[/x]") == Exit.USAGE
    assert capsys.readouterr().err.splitlines() == [
        "error: No such command 'who\\x1b[2J[/x]'.",
        "next:  `millrace --help`",
    ]
    assert ended(monkeypatch, "who") == Exit.USAGE
    assert capsys.readouterr().err.endswith("next:  `millrace who --help`\n")


def test_a_command_without_its_own_commands_shows_its_help_and_no_error(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ended(monkeypatch, "drill") == Exit.USAGE
    shown = capsys.readouterr()
    assert "random" in shown.out
    assert not shown.err


def test_a_role_that_is_no_role_is_told_as_text(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    assert ended(monkeypatch, "who", "[/x]\x1b[2J") == Exit.FAILED
    assert "there is no role '[/x]␛[2J'" in capsys.readouterr().err


def test_the_handbook_has_every_code() -> None:
    text = (REPO / "docs" / "operating.md").read_text()
    assert all(f"| {exit.value} | {exit.when} |" in text for exit in Exit)


def test_our_own_mistakes_are_told_as_text_too(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def load(name: str) -> None:
        raise ValueError("/a[/b]\x1b[2J")

    monkeypatch.setattr("millrace.hosts.commands.load_plan", load)
    assert ended(monkeypatch, "hosts") == Exit.FAILED
    said = capsys.readouterr().err
    assert said.startswith("Traceback")
    assert said.rstrip().endswith("ValueError: /a[/b]␛[2J")
