"""The status again and again: what is drawn, and which lines tell of a change."""

import io
from collections.abc import Callable, Iterable
from dataclasses import replace

import pytest
from typer.testing import CliRunner

from millrace.cli import app
from millrace.common.console import Console
from millrace.common.errors import UnreachableError
from millrace.status.verdict import AlertLine, Component, Status
from millrace.status.watch import Look, changes, watch

NOON = 1_767_268_800.0
ALERT = AlertLine("RedisDown", "critical", "redis", "2026-01-01T12:00:00Z", "no master", "redis")
HEALTHY = Status(
    "healthy",
    [Component("Redis", "healthy", "1 master"), Component("HDFS", "healthy", "1 active")],
    {},
    [],
    [],
    [],
    [],
    NOON,
    None,
    None,
    {"insights": []},
)
ILL = replace(
    HEALTHY,
    state="down",
    components=[Component("Redis", "down", "0 master", ["no host leads"]), HEALTHY.components[1]],
    alerts=[ALERT],
)
SILENT = UnreachableError("edge-1 doesn't let this machine in")


@pytest.mark.parametrize(
    ("before", "now", "told"),
    [
        (None, HEALTHY, ["the cluster: ● healthy"]),
        (HEALTHY, HEALTHY, []),
        (
            HEALTHY,
            ILL,
            ["the cluster: ✖ down", "Redis: ✖ down: no host leads", "RedisDown fires"],
        ),
        (ILL, replace(ILL, at=NOON + 60), []),
        (
            ILL,
            HEALTHY,
            ["the cluster: ● healthy", "Redis: ● healthy", "RedisDown has resolved"],
        ),
        (HEALTHY, SILENT, ["edge-1 doesn't let this machine in"]),
        (SILENT, UnreachableError(SILENT.message), []),
        (
            SILENT,
            ILL,
            ["the cluster: ✖ down", "Redis: ✖ down: no host leads", "RedisDown fires"],
        ),
    ],
)
def test_a_line_tells_of_each_change(before: Look | None, now: Look, told: list[str]) -> None:
    assert [line.plain for line in changes(before, now)] == told


def test_numbers_that_move_are_no_change() -> None:
    def behind(records: int) -> Status:
        job = Component("Job traffic", "degraded", f"{records} records", [f"{records} wait"])
        return replace(HEALTHY, components=[job], state="degraded")

    assert list(changes(behind(1), behind(2))) == []


def answers(looks: Iterable[Look]) -> tuple[Callable[[], Status], Callable[[float], None]]:
    """What is asked, and a pause that Ctrl-C ends once all has been."""
    left = iter(looks)
    ahead = next(left)

    def ask() -> Status:
        if isinstance(ahead, UnreachableError):
            raise ahead
        assert isinstance(ahead, Status)
        return ahead

    def pause(_: float) -> None:
        nonlocal ahead
        ahead = next(left, None)  # type: ignore[assignment]
        if ahead is None:
            raise KeyboardInterrupt

    return ask, pause


def shown(looks: Iterable[Look], *, terminal: bool) -> str:
    file = io.StringIO()
    ask, pause = answers(looks)
    console = Console(file=file, width=100, height=40, force_terminal=terminal)
    with pytest.raises(KeyboardInterrupt):
        watch(ask, "millrace-local", console, pause, now=lambda: NOON)
    return file.getvalue()


def test_a_log_has_a_line_for_each_change() -> None:
    assert shown([HEALTHY, HEALTHY, SILENT, SILENT, ILL, ILL], terminal=False).splitlines() == [
        "2026-01-01 12:00:00 UTC the cluster: ● healthy",
        "2026-01-01 12:00:00 UTC edge-1 doesn't let this machine in",
        "2026-01-01 12:00:00 UTC the cluster: ✖ down",
        "2026-01-01 12:00:00 UTC Redis: ✖ down: no host leads",
        "2026-01-01 12:00:00 UTC RedisDown fires",
    ]


def test_a_terminal_is_drawn_again_in_place_and_given_back() -> None:
    drawn = shown([HEALTHY, SILENT, ILL], terminal=True)
    assert drawn.startswith("\x1b[?1049h")  # a screen of its own
    assert drawn.endswith("\x1b[?25h\x1b[?1049l")
    for said in ("● healthy", "doesn't let this machine in", "✖ down"):
        assert said in drawn


def test_programs_don_t_watch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("millrace.status.watch.watch", lambda *_: pytest.fail("it watched"))
    assert CliRunner().invoke(app, ["status", "--watch", "--json"]).exit_code == 2
