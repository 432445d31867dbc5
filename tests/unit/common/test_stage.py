"""What a long stage leaves on a terminal and in a log."""

import io

from millrace.common import stage
from millrace.common.console import Console
from millrace.common.stage import Stage, clock, every_minute


class Clock:
    """Moved by hand."""

    seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def test_a_log_gets_a_line_when_it_begins_and_one_a_minute_however_much_is_done() -> None:
    shown, now = io.StringIO(), Clock()
    with Stage(Console(file=shown), "Pulumi makes the hosts", now) as made:
        for minute in (1, 2):
            for number in range(53):
                made.say(f"created Container [{number}]")
            now.seconds = 60.0 * minute
            made.remind()
    assert shown.getvalue().splitlines() == [
        "Pulumi makes the hosts …",
        "Pulumi makes the hosts, 1:00 min: created Container [52]",
        "Pulumi makes the hosts, 2:00 min: created Container [52]",
    ]


def test_a_terminal_keeps_nothing_of_it() -> None:
    shown = io.StringIO()
    console = Console(file=shown, force_terminal=True, color_system=None)
    with Stage(console, "Hosts") as made:
        made.say("[link=x]a\x1b[2J")
    assert "Hosts" in shown.getvalue()
    assert "\x1b[2J" not in shown.getvalue()
    assert not shown.getvalue().splitlines()[-1].endswith("Hosts")


def test_reminders_come_until_the_block_ends(monkeypatch) -> None:
    monkeypatch.setattr(stage, "MINUTE", 0)
    told: list[int] = []
    with every_minute(lambda: told.append(len(told))):
        while len(told) < 3:
            pass
    heard = len(told)
    assert told == list(range(heard))
    assert len(told) == heard  # its thread has ended


def test_minutes_are_read_as_on_a_clock() -> None:
    assert [clock(seconds) for seconds in (0, 59.4, 59.6, 245)] == ["0:00", "0:59", "1:00", "4:05"]
