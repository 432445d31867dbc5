"""What the command line prints when it ends with an error."""

import pytest

from millrace.cli import commands
from millrace.common.errors import OperatorError


def test_an_error_is_printed_as_text_whatever_is_in_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """It may quote a line of a log."""

    def fail() -> None:
        raise OperatorError("no log: /a[/b] [17/May/2015]", "say [bold]--format[/]")

    monkeypatch.setattr(commands, "app", fail)
    with pytest.raises(SystemExit) as ending:
        commands.main()
    assert ending.value.code == 1
    printed = capsys.readouterr().err
    assert "no log: /a[/b] [17/May/2015]" in printed
    assert "say [bold]--format[/]" in printed
