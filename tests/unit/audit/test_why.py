"""A number is held to the events that it was made of, and whatever these hold is text."""

import json
from collections import Counter
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from millrace.audit import why as module
from millrace.audit.why import Asked, Why, key_of
from millrace.cli import app
from millrace.cli import why as command
from millrace.cluster.dead_letters import Counted
from millrace.cluster.skips import Skipped
from millrace.common.errors import OperatorError
from millrace.common.exits import Exit
from millrace.plan import load_plan

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
PLAN = load_plan("local")
SAID: dict[str, Any] = {
    "job": "sessions",
    "window_seconds": 60,
    "slide_seconds": 60,
    "offset_seconds": 0,
    "join_seconds": None,
    "key": {"status": "int"},
    "values": {"requests": "bigint", "bytes": "bigint"},
    "approximate": {},
    "sessions": None,
}
ROW = {
    "window_start": "2026-01-01T12:00:00Z",
    "status": 404,
    "requests": 2,
    "bytes": 7,
    "final": True,
    "version": 1,
}
COUNTED = {name: ROW[name] for name in ("window_start", "status", "requests", "bytes")}


def event(offset: int = 1, **fields: Any) -> dict[str, Any]:
    return {
        "topic": "events",
        "partition": 0,
        "offset": offset,
        "received": "2026-01-01T12:00:05Z",
        "event_time": "2026-01-01T12:00:01Z",
        "id": f"e{offset}",
        "fields": {"status": 404} | fields,
    }


def explained(**changes: Any) -> dict[str, Any]:
    """As an edge host answers."""
    return {
        "rows": [COUNTED],
        "count": 2,
        "events": [event(1), event(2)],
        "apart_count": 0,
        "apart": [],
        "received": None,
        "notes": [],
    } | changes


class World:
    """What the command asks: the API by paths, and an edge host."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.answers: dict[str, Any] = {"/v1/jobs/sessions": {"rows": [ROW]}}
        self.said = SAID
        self.found = explained()
        self.asked: list[tuple[str, dict[str, Any]]] = []
        api = SimpleNamespace(get=lambda path, **_: self.answers[path])
        gateway = SimpleNamespace(why=self._why)
        positions = SimpleNamespace(wait_for=lambda *_: None)
        stand_ins = {
            "InsightApi": api,
            "Gateway": gateway,
            "Positions": positions,
            "Hdfs": None,
            "await_archives": {},
            "skipped": [],
        }
        for name, value in stand_ins.items():
            monkeypatch.setattr(module, name, lambda *_, value=value: value)
        monkeypatch.setattr(module, "said_of", lambda *_: self.said)

    def _why(self, job: str, question: dict[str, Any]) -> dict[str, Any]:
        self.asked.append((job, question))
        return self.found

    def why(self, job: str, key: str, moment: datetime = NOON) -> Why:
        return module.why(PLAN, job, key_of(key), moment, 100, 0)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    return World(monkeypatch)


def test_a_row_adds_up_to_its_events(world: World) -> None:
    found = world.why("sessions", "status=404")
    assert found.adds_up
    assert world.asked == [
        (
            "sessions",
            {
                "start": "2026-01-01T12:00:00",
                "end": "2026-01-01T12:00:00.001000",
                "key": {"status": "404"},
                "limit": 100,
            },
        )
    ]


@pytest.mark.parametrize(
    ("counted", "answered", "says"),
    [
        ([COUNTED | {"requests": 3}], [ROW], "requests 3 ≠ 2"),
        ([], [ROW], "no event makes this row"),
        ([COUNTED], [], "the API has no such row"),
    ],
)
def test_what_does_not_add_up_is_told(
    world: World, counted: list[Any], answered: list[Any], says: str
) -> None:
    world.found = explained(rows=counted)
    world.answers["/v1/jobs/sessions"] = {"rows": answered}
    assert world.why("sessions", "status=404").differences == [says]


def test_of_a_window_that_is_not_final_it_is_told(world: World) -> None:
    world.answers["/v1/jobs/sessions"] = {"rows": [ROW | {"final": False}]}
    [note] = world.why("sessions", "status=404").notes
    assert note.startswith("the window isn't final")


@pytest.mark.parametrize(
    ("job", "key", "moment", "says"),
    [
        ("nobody", "", NOON, "no application runs a job nobody that makes rows of events"),
        ("archive", "", NOON, "no application runs a job archive that makes rows of events"),
        ("sessions", "", NOON, "has the key status, not of nothing"),
        ("sessions", "status=1&url=/", NOON, "has the key status, not status, url"),
        ("sessions", "status=1", NOON + MINUTE / 2, "no window starts at"),
        ("traffic", "", NOON, "traffic has no row with the key that is empty"),
        ("traffic", "window=1m&url=/", NOON, "traffic has no row with the key {'window': '1m'"),
        ("traffic", "window=1h", NOON + MINUTE, "no window starts at 2026-01-01T12:01:00Z"),
    ],
)
def test_what_is_no_row_is_refused(
    world: World, job: str, key: str, moment: datetime, says: str
) -> None:
    with pytest.raises(OperatorError) as refused:
        world.why(job, key, moment)
    assert says in refused.value.message
    assert refused.value.hint
    assert world.asked == []


def test_no_event_and_no_row_is_told_with_what_is_kept(world: World) -> None:
    world.found = explained(rows=[], count=0, events=[])
    world.answers["/v1/jobs/sessions"] = {"rows": []}
    with pytest.raises(OperatorError, match="has no row with this key") as refused:
        world.why("sessions", "status=404")
    assert "the archive keeps events for" in (refused.value.hint or "")


def test_a_host_s_refusal_is_told(world: World) -> None:
    world.found = {"error": "a query within an expression", "kind": "Refused"}
    with pytest.raises(OperatorError, match="can't be told: a query within an expression"):
        world.why("sessions", "status=404")
    world.found = {"error": "no space", "kind": "OSError"}
    with pytest.raises(OperatorError, match="could not be explained: no space"):
        world.why("sessions", "status=404")


TRAFFIC = {"requests": 3, "page_views": 2, "bytes": 9, "status": {"2xx": 2, "4xx": 1}}


@pytest.mark.parametrize(("views", "differences"), [(2, []), (1, ["page_views 1 ≠ 2"])])
def test_traffic_is_compared_column_by_column(
    world: World, views: int, differences: list[str]
) -> None:
    world.answers["/v1/traffic"] = {"windows": [TRAFFIC | {"final": True}]}
    counted = {"requests": 3, "page_views": views, "bytes": 9, "status_2xx": 2, "status_4xx": 1}
    world.found = explained(rows=[counted | {"visitors_estimate": 7}])
    assert world.why("traffic", "window=1m").differences == differences


@pytest.mark.parametrize(
    ("answered", "error", "adds_up"), [(5, 0, True), (7, 2, True), (8, 2, False), (4, 2, False)]
)
def test_a_page_s_views_are_too_high_by_the_hour_s_error_at_most(
    world: World, answered: int, error: int, adds_up: bool
) -> None:
    world.answers["/v1/traffic"] = {"windows": [TRAFFIC | {"final": True}]}
    pages = [{"url": "/a", "page_views": answered}]
    world.answers["/v1/pages/top"] = {"pages": pages, "error": error}
    world.found = explained(rows=[{"page_views": 5}])
    assert world.why("traffic", "window=1h&url=/a").adds_up == adds_up
    with pytest.raises(OperatorError, match="no count of its own for the page /b"):
        world.why("traffic", "window=1h&url=/b")


SESSION: dict[str, Any] = {
    "visitor_id": "a",
    "start": "2026-01-01T12:10:00Z",
    "end": "2026-01-01T12:40:00.123Z",
    "events": 3,
    "entry": "/a",
    "exit": None,
    "spent": 0.3,
    "advertiser": "Acme",
    "open": False,
    "complete": True,
}


def slot(minute: int, **values: Any) -> dict[str, Any]:
    start = (NOON + minute * MINUTE).isoformat()
    return {"window_start": start, "visitor_id": "a", "entry": "/a", "exit": "/b"} | values


def test_a_session_s_slots_are_merged(world: World) -> None:
    merges = {
        "first": "start",
        "last": "end",
        "events": "sum",
        "entry": "first",
        "exit": "last",
        "spent": "sum",
        "advertiser": "last",  # looked up, so no event has it
    }
    kinds = {"first": "timestamp", "last": "timestamp", "events": "bigint", "spent": "double"}
    world.said = SAID | {
        "job": "sessions",
        "window_seconds": 1800,
        "slide_seconds": 1800,
        "key": {"visitor_id": "string"},
        "values": kinds | dict.fromkeys(("entry", "exit", "advertiser"), "string"),
        "sessions": {"gap_seconds": 1800, "pages": "events", "merges": merges},
    }
    path = "/v1/jobs/sessions/sessions"
    later = SESSION | {"start": "2026-01-01T13:30:00Z", "end": "2026-01-01T13:30:00Z"}
    world.answers[path] = {"sessions": [later, SESSION]}
    times = ["2026-01-01T12:10:00Z", "2026-01-01T12:29:00Z", "2026-01-01T12:40:00.123456Z"]
    slots = [
        slot(0, first=times[0], last=times[1], events=2, spent=0.1),
        slot(30, first=times[2], last=times[2], events=1, entry="/b", exit=None, spent=0.2),
    ]
    world.found = explained(rows=slots)
    found = world.why("sessions", "visitor_id=a", NOON + 15 * MINUTE)
    assert found.differences == []
    assert (found.asked.start, found.asked.end) == (NOON, NOON + 60 * MINUTE)
    world.found = explained(rows=slots[:1])
    [text] = world.why("sessions", "visitor_id=a", NOON + 15 * MINUTE).differences
    assert text == (
        "last 2026-01-01 12:29:00 ≠ 2026-01-01 12:40:00.123000, events 2 ≠ 3,"
        " spent 0.1 ≠ 0.3, exit /b ≠ None"
    )
    with pytest.raises(OperatorError, match="no session of that key"):
        world.why("sessions", "visitor_id=a", NOON)
    world.answers[path] = {"sessions": [SESSION | {"complete": False}]}
    with pytest.raises(OperatorError, match="began more than a day before"):
        world.why("sessions", "visitor_id=a", NOON + 15 * MINUTE)


def test_a_key_is_a_query() -> None:
    assert key_of("") == {}
    assert key_of("url=%2Fa%26b&campaign=") == {"url": "/a&b", "campaign": ""}


@pytest.mark.parametrize("text", ["status", "a=1&a=2", "&", "a=1&&b=2"])
def test_what_is_no_key_is_refused(text: str) -> None:
    with pytest.raises(OperatorError, match="is no key"):
        key_of(text)


def test_what_was_skipped_has_its_reason() -> None:
    said = Skipped("traffic", "events", 0, 1, 3, "a bomb", "ann", False, NOON)
    apart = [event(n) | {"reason": "skipped"} for n in (2, 3)] + [event(1) | {"reason": "late"}]
    found = module.with_reasons(apart, [said])
    assert [one["reason"] for one in found] == ["skipped: a bomb", "skipped", "late"]


def test_dead_letters_are_those_that_came_meanwhile_and_are_no_job_s() -> None:
    counted = [
        Counted("not JSON", 3, NOON),
        Counted("not JSON", 4, NOON + MINUTE),
        Counted("not JSON", 5, NOON + 3 * MINUTE),
        Counted("sessions: no", 1, NOON),
    ]
    first, last = NOON + MINUTE / 2, NOON + 2 * MINUTE
    found = module.letters_between(counted, first, last, ["sessions"])
    assert found == Counter({"not JSON": 7})


def shown(monkeypatch: pytest.MonkeyPatch, found: Why, *words: str) -> Any:
    monkeypatch.setattr(module, "why", lambda *_: found)
    typed = ["why", "sessions", "status=404", "2026-01-01T12:00Z", *words]
    return CliRunner().invoke(app, typed, env={"COLUMNS": "200"})


def some(*differences: str, letter: str = "not JSON", **changes: Any) -> Why:
    asked = Asked(NOON, NOON + MINUTE, {"status": "404"}, ROW, lambda _: [])
    return Why("sessions", asked, explained(**changes), [*differences], {letter: 2}, ["a note"])


def test_events_and_what_is_apart_are_tables(monkeypatch: pytest.MonkeyPatch) -> None:
    late = event(9) | {"reason": "late"}
    done = shown(monkeypatch, some(count=2000, apart=[late], apart_count=1))
    assert done.exit_code == 0
    assert "sessions status=404: the first 2 of 2,000 events" in done.output
    for text in ("events-0-1", "status=404", "events-0-9", "a note", "2 × not JSON", "they add up"):
        assert text in done.output


def test_programs_get_all_of_it(monkeypatch: pytest.MonkeyPatch) -> None:
    done = shown(monkeypatch, some("requests 3 ≠ 2"), "--json")
    assert done.exit_code == Exit.NOT_PASSED
    said = json.loads(done.output)
    assert (said["adds_up"], said["differences"]) == (False, ["requests 3 ≠ 2"])
    assert said["events"] == [event(1), event(2)]
    assert said["answer"] == ROW
    assert said["dead_letters"] == {"not JSON": 2}


@pytest.mark.parametrize("text", ["[bold red]x[/]", "\x1b[31mred", "a\u202eb", "\ud800", "\r\n"])
@pytest.mark.parametrize("form", [(), ("--json",)])
def test_what_is_in_an_event_commands_no_terminal(
    monkeypatch: pytest.MonkeyPatch, text: str, form: tuple[str, ...]
) -> None:
    hostile = event(1, url=text) | {"id": text}
    reason = hostile | {"reason": text}
    found = some(text, letter=text, events=[hostile], apart=[reason], apart_count=1)
    done = shown(monkeypatch, found, *form)
    assert done.exit_code == Exit.NOT_PASSED, done.exception
    assert not {"\x1b", "\u202e", "\r"} & {*done.output}
    assert "[bold red]x[/]" in done.output or text != "[bold red]x[/]"


def test_no_more_is_listed_than_a_host_holds() -> None:
    typed = ["why", "traffic", "window=1m", "2026-01-01T12:00Z", "--limit", str(command.MOST + 1)]
    assert CliRunner().invoke(app, typed).exit_code == Exit.USAGE
