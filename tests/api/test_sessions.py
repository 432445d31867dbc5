"""Sessions are made of slots when they are read, and are those of the events themselves."""

import asyncio
import json
import random
import threading
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from operator import itemgetter
from pathlib import Path
from types import FrameType
from typing import Any, NamedTuple

import hypothesis
import pytest
from fastapi.testclient import TestClient
from hypothesis import example, given
from hypothesis import strategies as st
from millrace_api import session_reader
from millrace_api.outputs import Output
from millrace_api.ranges import Span, floor
from millrace_api.session_reader import LONGEST_SESSION, Reader
from millrace_api.sessions import Merger, Session
from millrace_api.settings import Settings
from millrace_api.store import Budget, JobProgress, Part
from millrace_jobs.output import Output as Written
from millrace_jobs.output import Sessions

from tests.api.conftest import api_settings
from tests.api.fakes import FakeFeed, FakeStore
from tests.api.keys import BEARER, create_app

GAP = timedelta(minutes=30)
WRITTEN = Written(
    job="visits",
    table="job_visits",
    summary="Visits.",
    window_seconds=1800,
    slide_seconds=1800,
    offset_seconds=0,
    join_seconds=None,
    key={"visitor": "string"},
    values={
        "events": "bigint",
        "pages": "bigint",
        "first": "timestamp",
        "last": "timestamp",
        "entry_page": "string",
        "exit_page": "string",
    },
    approximate={},
    buckets=4,
    keep_seconds=86400,
    state=[],
    sessions=Sessions(
        gap_seconds=1800,
        pages="pages",
        merges={
            "events": "sum",
            "pages": "sum",
            "first": "start",
            "last": "end",
            "entry_page": "first",
            "exit_page": "last",
        },
    ),
)
OUTPUT = Output.model_validate_json(WRITTEN.to_json())
MERGER = Merger(OUTPUT)
TEN = datetime(2015, 5, 17, 10)
END = TEN + timedelta(minutes=50)
MIDNIGHT = datetime(2015, 5, 18)


class Event(NamedTuple):
    """``moment`` is UTC without saying so, as Spark's and Cassandra's are."""

    visitor: str
    moment: datetime
    url: str = "/"
    is_page: bool = True


def slots_of(events: Iterable[Event]) -> list[dict[str, Any]]:
    """What the job stores of events."""
    slots: dict[tuple[datetime, str], list[Event]] = defaultdict(list)
    for one in events:
        start = floor(one.moment.replace(tzinfo=UTC), GAP).replace(tzinfo=None)
        slots[start, one.visitor].append(one)
    rows = []
    for (start, visitor), inside in slots.items():
        ordered = sorted(inside, key=lambda one: (one.moment, one.url))
        values = {
            "window_start": start,
            "visitor": visitor,
            "events": len(ordered),
            "pages": sum(one.is_page for one in ordered),
            "first": ordered[0].moment,
            "last": ordered[-1].moment,
            "entry_page": ordered[0].url,
            "exit_page": ordered[-1].url,
        }
        rows.append(dict(zip(WRITTEN.columns, WRITTEN.row(values, 1), strict=True)))
    return rows


def recount(events: Iterable[Event]) -> list[Session]:
    """Sessions of the events themselves, one event after the other."""
    found: list[list[Event]] = []
    for one in sorted(events, key=lambda one: (one.visitor, one.moment, one.url)):
        last = found[-1][-1] if found else None
        if last and last.visitor == one.visitor and one.moment - last.moment < GAP:
            found[-1].append(one)
        else:
            found.append([one])
    return [
        Session(
            (run[0].visitor,),
            run[0].moment.replace(tzinfo=UTC),
            run[-1].moment.replace(tzinfo=UTC),
            (len(run), sum(one.is_page for one in run), run[0].url, run[-1].url),
        )
        for run in found
    ]


def parts_of(rows: Iterable[Mapping[str, Any]]) -> list[Session]:
    return MERGER.slots([[row[name] for name in MERGER.columns] for row in rows])


unhurried = hypothesis.settings(deadline=None)  # on a busy machine
moments = st.integers(-72, 72).map(lambda n: MIDNIGHT + n * timedelta(minutes=5))
lively = st.lists(
    st.builds(
        Event, st.sampled_from("abc"), moments, st.sampled_from(["/", "/x", "/y"]), st.booleans()
    ),
    max_size=60,
    unique_by=lambda one: (one.visitor, one.moment),
)


@unhurried
@given(lively, st.randoms(use_true_random=False))
def test_merged_slots_are_the_sessions_of_the_events(
    events: list[Event], chance: random.Random
) -> None:
    parts = parts_of(slots_of(events))
    chance.shuffle(parts)
    assert sorted(MERGER.merge(parts)) == recount(events)


@unhurried
@given(lively, moments)
def test_runs_merge_with_earlier_slots_as_slots_do(events: list[Event], moment: datetime) -> None:
    edge = floor(moment.replace(tzinfo=UTC), GAP)
    parts = parts_of(slots_of(events))
    late = MERGER.merge([part for part in parts if part.start >= edge])
    early = [part for part in parts if part.start < edge]
    assert sorted(MERGER.merge(late + early)) == recount(events)


@unhurried
@given(lively, moments, st.integers(1, 300), st.sampled_from([0, 100]))
@example([Event("a", MIDNIGHT + n * timedelta(minutes=29)) for n in range(-9, 9)], MIDNIGHT, 60, 0)
def test_what_is_read_for_a_range_is_its_sessions_whole(
    events: list[Event], start: datetime, minutes: int, few_keys: int
) -> None:
    """By key or by window, and however far back a session began (within a day)."""
    span = Span(start.replace(tzinfo=UTC), (start + timedelta(minutes=minutes)).replace(tzinfo=UTC))
    store = FakeStore(job_table=slots_of(events))

    async def read() -> list[Session]:
        reader = Reader(store, OUTPUT, MERGER, rows=10_000)
        return (await reader.reach_back(await reader.ending(span, None), span)).sessions

    expected = [one for one in recount(events) if span.start <= one.end < span.end]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(session_reader, "FEW_KEYS", few_keys)
        assert sorted(asyncio.run(read())) == expected


def test_events_exactly_a_gap_apart_are_two_sessions() -> None:
    for apart, sessions in ((GAP, 2), (GAP - timedelta(milliseconds=1), 1)):
        events = [Event("a", TEN), Event("a", TEN + apart)]
        assert len(MERGER.merge(parts_of(slots_of(events)))) == sessions


def test_what_is_absent_from_a_slot_is_neutral() -> None:
    [one] = MERGER.merge(
        Session(("a",), at, at, (count, 1, "/", "/"))
        for at, count in ((TEN, None), (TEN + GAP / 2, 2), (TEN + GAP, None))
    )
    assert one.values == (2, 3, "/", "/")


# -- Routes

VISITS = [
    Event("ann", TEN, "/in"),
    Event("ann", TEN + timedelta(minutes=20), "/mid"),
    Event("ann", TEN + timedelta(minutes=45), "/out"),
    Event("bob", TEN + timedelta(minutes=50), "/only"),
    Event("cid", TEN + timedelta(minutes=15), "/seen"),
    Event("cid", TEN + timedelta(minutes=16), "/style.css", is_page=False),
]
RANGE = {"from": "2015-05-17T10:00:00Z", "to": "2015-05-17T11:00:00Z"}


@pytest.fixture(autouse=True)
def _job(store: FakeStore, progress: Callable[..., JobProgress]) -> None:
    store.described = [WRITTEN.to_json()]
    store.job_table = slots_of(VISITS)
    seen = progress("2015-05-17T10:50:00+00:00", datetime.now(UTC), "visits")
    store.jobs = [seen]


def test_open_sessions_are_shown_whole_the_newest_first(client: TestClient) -> None:
    answer = client.get("/v1/jobs/visits/live").json()
    assert (answer["as_of"], answer["open"]) == ("2015-05-17T10:50:00Z", 2)
    assert [one["visitor"] for one in answer["sessions"]] == ["bob", "ann"]
    assert answer["sessions"][1] == {
        "visitor": "ann",
        "start": "2015-05-17T10:00:00Z",
        "end": "2015-05-17T10:45:00Z",
        "events": 3,
        "pages": 3,
        "entry_page": "/in",
        "exit_page": "/out",
        "seconds": 2700,
        "open": True,
        "bounced": False,
        "complete": True,
    }


def test_a_limit_shows_fewer_and_counts_all(client: TestClient) -> None:
    answer = client.get("/v1/jobs/visits/live", params={"limit": 1}).json()
    assert (answer["open"], len(answer["sessions"])) == (2, 1)


visitors = st.lists(
    st.tuples(st.sampled_from("abcdefgh"), st.integers(0, 80)), max_size=30, unique=True
)


@hypothesis.settings(unhurried, max_examples=25)
@given(visitors, st.integers(1, 4))
def test_pages_of_open_sessions_are_all_of_them_each_once(
    panels: Path, visits: list[tuple[str, int]], limit: int
) -> None:
    """The job's clock is behind its rows, so that two sessions of one visitor may be open."""
    events = [Event(visitor, TEN + timedelta(minutes=minute)) for visitor, minute in visits]
    store = FakeStore(described=[WRITTEN.to_json()], job_table=slots_of(events), jobs=seen(END))
    with TestClient(create_app(api_settings(panels), store, FakeFeed()), headers=BEARER) as client:
        everything = client.get(LIVE, params={"limit": 100}).json()
        assert everything["open"] == len(everything["sessions"])
        assert everything["next"] is None
        found: list[dict[str, Any]] = []
        url: str | None = f"{LIVE}?limit={limit}"
        while url:
            answer = client.get(url)
            assert len(answer.json()["sessions"]) <= limit
            found += answer.json()["sessions"]
            link = answer.links.get("next")
            url = link and str(answer.url.join(link["url"]))
    assert found == everything["sessions"]


def test_a_cursor_of_sessions_is_of_no_other_question(client: TestClient) -> None:
    cursor = client.get(LIVE, params={"limit": 1}).json()["next"]
    assert client.get(LIVE, params={"cursor": cursor}).status_code == 200
    answer = client.get(LIVE, params={"cursor": cursor, "visitor": "ann"})
    assert (answer.status_code, answer.json()["parameter"]) == (422, "cursor")


def test_one_key_reads_its_own_slots_alone(client: TestClient, store: FakeStore) -> None:
    answer = client.get("/v1/jobs/visits/live", params={"visitor": "ann"}).json()
    assert [one["visitor"] for one in answer["sessions"]] == ["ann"]
    assert all(part.key == {"visitor": "ann"} for _, part, _ in store.reads)


def test_a_session_is_open_until_its_gap_is_over(
    client: TestClient, store: FakeStore, progress: Callable[..., JobProgress]
) -> None:
    seen = "2015-05-17T11:15:00+00:00"  # the gap after ann's last event
    store.jobs = [progress(seen, datetime.now(UTC), "visits")]
    assert [one["visitor"] for one in client.get("/v1/jobs/visits/live").json()["sessions"]] == [
        "bob"
    ]


def test_a_clock_that_is_ahead_opens_and_closes_nothing(
    client: TestClient, store: FakeStore, progress: Callable[..., JobProgress]
) -> None:
    now = datetime.now(UTC).replace(microsecond=0)
    store.job_table = slots_of([Event("ann", now.replace(tzinfo=None) - timedelta(minutes=1))])
    ahead = (now + timedelta(hours=1)).isoformat()
    store.jobs = [progress(ahead, now, "visits")]
    assert client.get("/v1/jobs/visits/live").json()["open"] == 1


def test_closed_sessions_are_summarised_by_minute(client: TestClient) -> None:
    later = RANGE | {"to": "2015-05-17T11:30:00Z"}  # when ann's and bob's gaps would be over
    answer = client.get("/v1/jobs/visits/closed", params=later).json()
    assert answer["minutes"] == [
        {
            "start": "2015-05-17T10:46:00Z",  # cid's gap
            "closed": 1,
            "bounced": 1,
            "mean_seconds": 60,
            "mean_pages": 1,
            "final": False,
        }
    ]


def test_a_minute_is_final_once_no_late_event_can_lengthen_its_sessions(
    client: TestClient, store: FakeStore, progress: Callable[..., JobProgress]
) -> None:
    for watermark, final in (("10:59:59", False), ("11:00:00", True)):
        at = f"2015-05-17T{watermark}+00:00"
        store.jobs = [progress(at, datetime.now(UTC), "visits")]
        client.app.state.closed_sessions._answers.clear()  # type: ignore[attr-defined]
        [minute] = client.get("/v1/jobs/visits/closed", params=RANGE).json()["minutes"]
        assert (minute["start"], minute["final"]) == ("2015-05-17T10:46:00Z", final)


def test_a_key_has_its_sessions(client: TestClient) -> None:
    answer = client.get("/v1/jobs/visits/sessions", params=RANGE | {"visitor": "cid"}).json()
    [one] = answer["sessions"]
    assert (one["open"], one["bounced"], one["pages"], one["events"]) == (False, True, 1, 2)
    assert answer["open"] == 0


def test_a_session_of_more_than_a_day_says_that_it_began_earlier(
    client: TestClient, store: FakeStore
) -> None:
    minutes = range(0, 3 * 24 * 60, 20)
    end = TEN + timedelta(minutes=50)
    store.job_table = slots_of(Event("bot", end - timedelta(minutes=n)) for n in minutes)
    [one] = client.get("/v1/jobs/visits/live").json()["sessions"]
    assert not one["complete"]
    assert one["seconds"] >= LONGEST_SESSION.total_seconds()


@pytest.mark.parametrize(
    ("path", "params", "status", "says"),
    [
        ("/v1/jobs/nobody/live", {}, 404, "/v1/jobs lists"),
        ("/v1/jobs/plain/live", {}, 404, "no slots of sessions"),
        ("/v1/jobs/visits/live", {"url": "/"}, 422, "no column of the key, which is visitor"),
        ("/v1/jobs/visits/live", {"limit": "101"}, 422, "limit"),
        ("/v1/jobs/visits/closed", RANGE | {"to": "2015-05-19T10:00:00Z"}, 422, "at most"),
        ("/v1/jobs/visits/closed", RANGE | {"to": "2015-05-17T10:00:30Z"}, 422, "whole minute"),
        ("/v1/jobs/visits/sessions", RANGE, 422, "whose sessions"),
    ],
)
def test_what_cannot_be_answered_is_told(
    client: TestClient, store: FakeStore, path: str, params: dict[str, str], status: int, says: str
) -> None:
    plain = json.loads(WRITTEN.to_json()) | {"job": "plain", "sessions": None}
    store.described.append(json.dumps(plain))
    answer = client.get(path, params=params)
    assert answer.status_code == status
    assert says in answer.json()["detail"]


def test_a_description_of_an_older_version_is_one_of_rows_alone(
    client: TestClient, store: FakeStore
) -> None:
    older = json.loads(WRITTEN.to_json())
    del older["sessions"]
    store.described = [json.dumps(older)]
    [job] = client.get("/v1/jobs").json()["jobs"]
    assert job["sessions"] is None


def test_each_job_of_sessions_has_its_paths_in_the_openapi_document(
    client: TestClient, store: FakeStore
) -> None:
    plain = json.loads(WRITTEN.to_json()) | {"job": "plain", "sessions": None}
    store.described.append(json.dumps(plain))
    client.get("/v1/jobs")
    paths = client.get("/openapi.json").json()["paths"]
    below = sorted(path for path in paths if path.startswith("/v1/jobs/visits/"))
    assert below == [f"/v1/jobs/visits/{name}" for name in ("closed", "live", "sessions")]
    assert not [path for path in paths if path.startswith("/v1/jobs/plain/")]
    names = [one["name"] for one in paths["/v1/jobs/visits/live"]["get"]["parameters"]]
    assert names == ["limit", "cursor", "visitor"]


# -- Many visitors


class ByWindow(FakeStore):
    """Finds windows without a look at every row, as a database does."""

    rows_read: int = 0

    def index(self) -> None:
        self.found: dict[Any, dict[Any, dict[str, Any]]] = defaultdict(dict)
        for row in self.job_table:
            place = row["day"], row["bucket"], row["window_start"]
            self.found[place][row["visitor"]] = row
        self.chosen: dict[Any, list[tuple[Any, ...]]] = {}

    async def windows(
        self, table: str, columns: Sequence[str], part: Part, budget: Budget
    ) -> list[tuple[Any, ...]]:
        await self._read(table, part, columns)
        rows: list[tuple[Any, ...]] = []
        for start in part.starts:
            place = part.day, part.bucket, start.replace(tzinfo=None)
            found = (
                self._chosen(place, columns) if not part.key else self._one(place, columns, part)
            )
            budget.take(len(found))
            rows += found
        self.rows_read += len(rows)
        return rows

    def _chosen(self, place: Any, columns: Sequence[str]) -> list[tuple[Any, ...]]:
        about = (*place, *columns)
        if about not in self.chosen:
            self.chosen[about] = list(map(itemgetter(*columns), self.found[place].values()))
        return self.chosen[about]

    def _one(self, place: Any, columns: Sequence[str], part: Part) -> list[tuple[Any, ...]]:
        row = self.found[place].get(part.key["visitor"])
        return [itemgetter(*columns)(row)] if row else []


def crowd(visitors: int) -> ByWindow:
    """All of them came again and again within the last hours."""
    events = (
        Event(f"visitor-{number:07d}", END - timedelta(minutes=25 * visit, seconds=number % 60))
        for number in range(visitors)
        for visit in range(1 + number % 8)
    )
    store = ByWindow(described=[WRITTEN.to_json()], job_table=slots_of(events))
    store.index()
    return store


def seen(moment: datetime) -> list[JobProgress]:
    aware = moment.replace(tzinfo=UTC)
    return [JobProgress("visits", 1, 1, None, aware, aware, 1.0, "1", "a")]


@pytest.fixture(scope="module")
def thousand() -> ByWindow:
    return crowd(1000)


@pytest.fixture(scope="module")
def ten_thousand() -> ByWindow:
    return crowd(10_000)


@pytest.fixture
def kept_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    """All that is asked is asked within what an answer is kept for."""
    monkeypatch.setattr("millrace_api.session_routes.KEEP_SECONDS", 3600)


class Work:
    """Calls that the API's own code makes, of functions of any kind, in every thread."""

    calls = 0

    def count(self, frame: FrameType, event: str, _: object) -> None:
        if event in ("call", "c_call") and "/millrace_api/" in frame.f_code.co_filename:
            self.calls += 1


@contextmanager
def counted() -> Iterator[Work]:
    """The work of threads that begin within."""
    work = Work()
    threading.setprofile(work.count)
    try:
        yield work
    finally:
        threading.setprofile(None)


LIVE = "/v1/jobs/visits/live"
CLOSED = "/v1/jobs/visits/closed"
ALL_OF_THEM = {"from": "2015-05-17T11:15:00Z", "to": "2015-05-17T11:25:00Z"}
CALLS_PER_SLOT = 25  # of the API's own code: reading, merging and summarising


@pytest.mark.parametrize(
    ("path", "params", "now"),
    [(LIVE, {"limit": "100"}, END), (CLOSED, ALL_OF_THEM, END + GAP)],
)
def test_of_ten_thousand_visitors_each_slot_is_read_once_and_costs_a_few_calls(
    settings: Settings,
    feed: FakeFeed,
    thousand: ByWindow,
    ten_thousand: ByWindow,
    path: str,
    params: dict[str, str],
    now: datetime,
) -> None:
    """And the work grows no faster than visitors do."""
    few = answered(settings, feed, thousand, path, params, now)
    many = answered(settings, feed, ten_thousand, path, params, now)
    answer = many.answer
    found = answer["open"] if path == LIVE else sum(one["closed"] for one in answer["minutes"])
    assert found == 10_000
    windows = [(part.bucket, *part.starts) for _, part, _ in ten_thousand.reads if not part.key]
    assert len(windows) == len(set(windows))
    assert many.rows <= len(ten_thousand.job_table)
    assert many.calls < CALLS_PER_SLOT * many.rows
    assert many.calls < 11 * few.calls


def test_one_visitor_costs_the_same_however_many_there_are(
    settings: Settings, feed: FakeFeed, thousand: ByWindow, ten_thousand: ByWindow
) -> None:
    key = {"visitor": "visitor-0000007"}
    few, many = (
        answered(settings, feed, store, LIVE, key, END) for store in (thousand, ten_thousand)
    )
    assert many.answer["open"] == 1
    assert many.rows == few.rows < 10
    assert many.calls < 1.1 * few.calls


class Answered(NamedTuple):
    answer: dict[str, Any]
    calls: int
    rows: int


def answered(
    settings: Settings,
    feed: FakeFeed,
    store: ByWindow,
    path: str,
    params: dict[str, str],
    now: datetime,
) -> Answered:
    """By a new API, which has kept nothing."""
    store.jobs = seen(now)
    store.reads.clear()
    store.rows_read = 0
    feed.away = True  # nothing else goes on meanwhile, however long it takes
    with counted() as work, TestClient(create_app(settings, store, feed), headers=BEARER) as client:
        answer = client.get(path, params=params).json()
    return Answered(answer, work.calls, store.rows_read)


@pytest.mark.usefixtures("kept_for_long")
def test_of_those_that_are_not_shown_only_their_times_are_read(
    settings: Settings, feed: FakeFeed, ten_thousand: ByWindow
) -> None:
    ten_thousand.jobs = seen(END)
    ten_thousand.reads.clear()
    with TestClient(create_app(settings, ten_thousand, feed), headers=BEARER) as client:
        answers = [client.get("/v1/jobs/visits/live", params={"limit": n}).json() for n in (3, 2)]
    of_all = [(part, columns) for _, part, columns in ten_thousand.reads if not part.key]
    assert {tuple(columns) for _, columns in of_all} == {("visitor", "first", "last")}
    places = [(part.bucket, *part.starts) for part, _ in of_all]
    assert len(places) == len(set(places))  # once for both
    assert {len(place) for place in places} == {2}  # window by window
    of_keys = {part.key["visitor"] for _, part, _ in ten_thousand.reads if part.key}
    assert of_keys == {one["visitor"] for one in answers[0]["sessions"]}
    assert answers[1]["sessions"] == answers[0]["sessions"][:2]


@pytest.mark.usefixtures("kept_for_long")
def test_more_than_may_be_read_is_refused_and_not_read_again_at_once(
    settings: Settings, feed: FakeFeed, ten_thousand: ByWindow
) -> None:
    ten_thousand.jobs = seen(END)
    few = settings.model_copy(update={"session_rows": 5000})
    with TestClient(create_app(few, ten_thousand, feed), headers=BEARER) as client:
        reads = []
        for _ in range(5):
            answer = client.get("/v1/jobs/visits/live")
            assert answer.status_code == 422
            assert "ask for one key" in answer.json()["detail"]
            reads.append(len(ten_thousand.reads))
        assert len(set(reads)) == 1
        one = client.get("/v1/jobs/visits/live", params={"visitor": "visitor-0000007"})
        assert one.json()["open"] == 1
