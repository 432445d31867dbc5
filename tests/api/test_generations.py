"""Readers who are switched to another count of the past see it in whole answers, and go back so."""

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable
from contextlib import suppress
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from fastapi.testclient import TestClient
from hypothesis import given
from hypothesis import strategies as st
from millrace_api import hub as hubs
from millrace_api.hub import REPLACED, Hub
from millrace_api.job_rows import Place, RowReader
from millrace_api.ranges import DAY, HOUR, Span, Window
from millrace_api.session_reader import Reader
from millrace_api.store import JobProgress

from millrace_shared.generations import NONE, Layer, Overlay
from tests.api import test_job_rows as rows_of_a_job
from tests.api.fakes import FakeFeed, FakeStore
from tests.api.test_history import FIRST, LATER, counted
from tests.api.test_job_rows import MIDNIGHT, OUTPUT, WEEK, WRITTEN, Key, keys
from tests.waiting import PATIENCE_SECONDS

MakeProgress = Callable[..., JobProgress]
NOW = datetime.now(UTC)
WINDOW = timedelta(hours=6)


def overlay_of(*switches: tuple[datetime, datetime, int]) -> Overlay:
    overlay = NONE
    for version, (start, end, generation) in enumerate(switches, 100):
        overlay = overlay.switched(Layer(start, end, generation, version))
    return overlay


# -- Rows of a declared job

ranges = st.tuples(st.integers(-13, 14), st.integers(1, 12), st.integers(0, 2))


def stored(key: Key, generation: int) -> dict[str, Any]:
    window, visitor, site = key
    start = MIDNIGHT + window * WINDOW
    values = {"window_start": start, "visitor": visitor, "site": site, "events": generation}
    row = WRITTEN.row(values, version=1, generation=generation)
    return dict(zip(WRITTEN.columns, row, strict=True))


def read(store: FakeStore, overlay: Overlay, wanted: dict[str, Any], limit: int) -> list[Any]:
    found: list[Any] = []
    after: Place | None = None
    while True:
        reader = RowReader(store, OUTPUT, rows_of_a_job.LOOKED_AT, overlay)
        page = asyncio.run(reader.page(WEEK, wanted, after, limit))
        found += page.rows
        if page.more is None:
            return found
        after = page.more


@given(
    st.lists(st.sets(keys, max_size=25), min_size=3, max_size=3),
    st.lists(ranges, max_size=3),
    rows_of_a_job.asked,
    st.integers(1, 5),
)
def test_each_row_is_of_the_generation_that_readers_see_there(
    generations: list[set[Key]],
    switched: list[tuple[int, int, int]],
    wanted: dict[str, Any],
    limit: int,
) -> None:
    table = [stored(key, number) for number, found in enumerate(generations) for key in found]
    store = FakeStore(described=[WRITTEN.to_json()], job_table=table)
    midnight = MIDNIGHT.replace(tzinfo=UTC)
    overlay = overlay_of(
        *(
            (midnight + first * WINDOW, midnight + (first + windows) * WINDOW, generation)
            for first, windows, generation in switched
        )
    )
    expected = Counter(
        (key, layer.generation, max(1, layer.version))
        for number, found in enumerate(generations)
        for key in rows_of_a_job.matching(found, wanted)
        if (layer := overlay.at(midnight + key[0] * WINDOW)).generation == number
    )
    assert expected == Counter(
        (
            ((row.place.start - midnight) // WINDOW, row.values["visitor"], row.values["site"]),
            row.values["events"],
            row.values["version"],
        )
        for row in read(store, overlay, wanted, limit)
    )


def test_who_goes_on_after_a_switch_begins_anew(client: TestClient, store: FakeStore) -> None:
    store.described = [WRITTEN.to_json()]
    store.job_table = [stored((n, "a", 1), generation) for n in range(4) for generation in (0, 1)]
    path, asked = "/v1/jobs/visits", rows_of_a_job.RANGE | {"limit": "2"}
    first = client.get(path, params=asked).json()
    assert ([row["events"] for row in first["rows"]], first["revision"]) == ([0, 0], 0)
    store.overlays[WRITTEN.table] = overlay_of((WEEK.start, WEEK.end, 1))
    refused = client.get(path, params=asked | {"cursor": first["next"]})
    assert (refused.status_code, refused.json()["parameter"]) == (422, "cursor")
    whole = client.get(path, params=asked | {"limit": "9"}).json()
    assert ([row["events"] for row in whole["rows"]], whole["revision"]) == ([1] * 4, 1)
    assert {row["version"] for row in whole["rows"]} == {100}


@pytest.mark.parametrize("key", [None, ("a", 1)])
def test_slots_are_read_where_readers_see_them(key: Any) -> None:
    store = FakeStore(described=[WRITTEN.to_json()])
    start = MIDNIGHT.replace(tzinfo=UTC)
    overlay = overlay_of((start + WINDOW, start + 2 * WINDOW, 3))
    reader = Reader(store, OUTPUT, _NoMerger(), 100, overlay)  # type: ignore[arg-type]
    asyncio.run(reader._slots(Span(start, start + 3 * WINDOW), key and [key]))
    parts: Iterable[Any] = [part for _, part, _ in store.reads]
    assert {(at, part.generation) for part in parts for at in part.starts} == {
        (start, 0),
        (start + WINDOW, 3),
        (start + 2 * WINDOW, 0),
    }


class _NoMerger:
    gap = timedelta(0)
    columns: tuple[str, ...] = ("window_start",)

    def slots(self, rows: Any) -> list[Any]:
        return []


# -- Traffic

SPAN = {"from": FIRST.isoformat(), "to": (FIRST + 2 * DAY).isoformat()}


@pytest.fixture
def _counted_twice(store: FakeStore, progress: MakeProgress) -> None:
    """Each hour has one request by the stream, and ten by another count."""
    hours = [FIRST + n * HOUR for n in range(48)]
    store.jobs = [progress(LATER, NOW)]
    store.rows = [counted(Window.HOUR, hour) for hour in hours]
    store.rows_again = {1: [counted(Window.HOUR, hour, 10) for hour in hours]}
    store.pages = {hour: Counter({"/": 1}) for hour in hours}
    store.pages_again = {1: {hour: Counter({"/": 10}) for hour in hours}}


def answers(client: TestClient) -> tuple[int, int, int, set[int]]:
    """Requests by windows and in all, views of the page; and which revisions they are of."""
    windows = client.get("/v1/traffic", params=SPAN).json()
    total = client.get("/v1/traffic/total", params=SPAN).json()
    top = client.get("/v1/pages/top", params=SPAN).json()
    return (
        sum(window["requests"] for window in windows["windows"]),
        total["requests"],
        top["pages"][0]["page_views"],
        {windows["revision"], total["revision"], top["revision"]},
    )


@pytest.mark.usefixtures("_counted_twice")
def test_what_is_kept_is_kept_of_what_readers_see(client: TestClient, store: FakeStore) -> None:
    before, whole = (48, 48, 48, {0}), FIRST + 2 * DAY
    assert answers(client) == before == answers(client)
    store.overlays["traffic"] = overlay = overlay_of((FIRST + HOUR, whole - HOUR, 1))
    assert answers(client) == (462, 462, 462, {1})
    [first, second] = client.get("/v1/traffic", params=SPAN).json()["windows"][:2]
    assert (first["version"], second["version"]) == (7, 100)
    store.overlays["traffic"] = overlay.taken_back(200)
    assert answers(client) == (48, 48, 48, {2})


@pytest.mark.parametrize("reads", [1, 3, 9])
def test_no_answer_is_a_mixture_when_readers_are_switched_while_it_is_read(
    client: TestClient, store: FakeStore, progress: MakeProgress, reads: int
) -> None:
    """Of more days than are read at once."""
    end = FIRST + 20 * DAY
    hours = [FIRST + n * HOUR for n in range(20 * 24)]
    store.jobs = [progress(LATER, NOW)]
    store.rows = [counted(Window.HOUR, hour) for hour in hours]
    store.rows_again = {1: [counted(Window.HOUR, hour, 10) for hour in hours]}

    def switch(store: FakeStore) -> None:
        store.overlays["traffic"] = overlay_of((FIRST, end, 1))

    def nothing(_: FakeStore) -> None: ...

    span = {"from": FIRST.isoformat(), "to": end.isoformat()}
    store.commits = [*[nothing] * reads, switch]
    for revision in (0, 1):
        answer = client.get("/v1/traffic", params=span).json()
        assert answer["revision"] == revision
        assert sum(window["requests"] for window in answer["windows"]) == 480 * 10**revision
    assert not store.commits


def test_who_watches_is_told_of_a_switch(store: FakeStore, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hubs, "POLL_SECONDS", 0)
    hub = Hub(FakeFeed(), store)

    async def scenario() -> Any:
        with hub.viewer("me") as viewer:
            task = asyncio.create_task(hub.follow_switches())
            for _ in range(5):
                await asyncio.sleep(0)
            store.away = True  # it goes on once the store is back
            for _ in range(5):
                await asyncio.sleep(0)
            store.away = False
            store.overlays["traffic"] = overlay_of((FIRST, FIRST + DAY, 1))
            event = await asyncio.wait_for(anext(viewer.events()), PATIENCE_SECONDS)
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task
            return event

    assert asyncio.run(scenario()) == REPLACED
