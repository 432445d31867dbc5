"""Reading from Cassandra: the bridge from the driver's threads, and the queries on a real ring."""

import asyncio
import threading
from collections import Counter
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

import pytest
from cassandra import InvalidRequest, OperationTimedOut
from cassandra.query import BatchStatement, BatchType
from millrace_api import store as store_module
from millrace_api.job_rows import RowReader
from millrace_api.outputs import Output as Described
from millrace_api.ranges import Span, Window
from millrace_api.store import (
    Budget,
    CassandraStore,
    DeadLetters,
    Pages,
    Part,
    StoreUnavailable,
    Stretch,
    TooManyRows,
    rows_of,
)
from millrace_jobs.output import Output

from millrace_shared.generations import Layer, Overlay


class Response:
    """A driver's future that answers from a thread, as often as it is told to."""

    def __init__(self, *answers: Any, paging_state: bytes | None = None) -> None:
        self._answers = answers
        self._paging_state = paging_state
        self._col_names: list[str] = []
        self._col_types: list[Any] = []

    def add_callbacks(self, callback: Callable, errback: Callable) -> None:
        def answer() -> None:
            for item in self._answers:
                (errback if isinstance(item, Exception) else callback)(item)

        thread = threading.Thread(target=answer)
        thread.start()
        thread.join()


def page_of(response: Response) -> tuple[list[Any], bytes | None]:
    """The page, once every answer has come; none of them may trouble the event loop."""
    troubles: list[Any] = []

    async def scenario() -> tuple[list[Any], bytes | None]:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: troubles.append(context))
        try:
            return await store_module._page(response)
        finally:
            await asyncio.sleep(0)

    try:
        return asyncio.run(scenario())
    finally:
        assert troubles == []


def test_a_speculative_request_that_is_answered_too_counts_once() -> None:
    response = Response(["a", "b"], ["a", "b"], paging_state=b"next")
    assert page_of(response) == (["a", "b"], b"next")


def test_an_error_after_an_answer_is_ignored_and_before_it_is_raised() -> None:
    assert page_of(Response(["a"], OperationTimedOut()))[0] == ["a"]
    with pytest.raises(OperationTimedOut):
        page_of(Response(OperationTimedOut(), ["a"]))


def test_before_the_first_connection_the_store_is_unavailable(settings: Any) -> None:
    with pytest.raises(StoreUnavailable, match="not connected"):
        asyncio.run(CassandraStore(settings).progress())


def test_a_job_that_has_only_claimed_its_epoch_has_no_progress(
    settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    names = "batch watermark max_event_time updated input_rows_per_second version checkpoint"
    claimed = SimpleNamespace(job="traffic", epoch=7, **dict.fromkeys(names.split()))

    async def fetch(*_: Any) -> list[Any]:
        return [claimed]

    monkeypatch.setattr(CassandraStore, "_fetch", fetch)
    assert asyncio.run(CassandraStore(settings).progress()) == []


def test_the_newest_rows_are_asked_for_with_a_limit_whatever_is_asked(
    settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[str, tuple[Any, ...]]] = []

    async def fetch(_: Any, query: str, values: tuple[Any, ...]) -> list[Any]:
        asked.append((query, values))
        return []

    monkeypatch.setattr(CassandraStore, "_fetch", fetch)
    below = {"window_start": DAY + timedelta(hours=2), "visitor": "b"}
    stretch = Stretch((DAY.date(), 1), DAY, below)
    asyncio.run(CassandraStore(settings).newest("job_visits", ["visitor", "n"], stretch, 7))
    [(query, values)] = asked
    assert query == (
        'SELECT "visitor", "n" FROM {keyspace}."job_visits" WHERE day = ? AND bucket = ?'
        ' AND ("window_start") >= (?) AND ("window_start", "visitor") < (?, ?)'
        " ORDER BY window_start DESC LIMIT ?"
    )
    assert values == (DAY.date(), 1, DAY, *below.values(), 7)


# -- On a real ring

DAY = datetime(2001, 2, 3, tzinfo=UTC)  # older than any event that a job accepts
SPAN = Span(DAY, DAY + timedelta(days=1))
PAGES = 5500  # more than the driver's page of 5,000 rows


@asynccontextmanager
async def connected(settings: Any) -> AsyncIterator[CassandraStore]:
    """A store on the running cluster, as this machine reaches it."""
    from millrace.cluster import tunnel
    from millrace.cluster.cassandra import Reached
    from millrace.common.paths import stack_name
    from millrace.plan import load_plan

    plan = load_plan(stack_name())
    addresses = tunnel.reachable(plan, "cassandra", "native")
    store = CassandraStore(settings.model_copy(update={"cassandra": addresses}))
    translated = partial(store_module.Cluster, address_translator=Reached(plan))
    with patch.object(store_module, "Cluster", translated):
        async with asyncio.timeout(60):
            await store.connect_forever()
    try:
        yield store
    finally:
        store.close()


def test_the_range_of_data_has_what_only_another_count_has(
    settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A window all of whose events came too late is in no row of the stream's."""
    overlay = Overlay().switched(Layer(DAY, DAY + timedelta(days=1), 3, 9))
    starts = {"1h": [DAY + timedelta(hours=n) for n in (5, 6)], "1h#3": [DAY, DAY]}
    starts["1h#4"] = [DAY - timedelta(days=9)] * 2  # that no reader sees

    async def fetch(_: Any, query: str, values: tuple[Any, ...] = ()) -> list[Any]:
        if ".overlays" in query:
            return [SimpleNamespace(content=overlay.content, revision=overlay.revision)]
        if "DISTINCT" in query:
            day = SimpleNamespace(date=DAY.date)
            return [SimpleNamespace(window=window, bucket=day) for window in starts]
        at = starts[values[0]]["DESC" in query]
        return [SimpleNamespace(window_start=at.replace(tzinfo=None))]

    monkeypatch.setattr(CassandraStore, "_fetch", fetch)
    found = asyncio.run(CassandraStore(settings).extent(Window.HOUR))
    assert found == Span(DAY, DAY + timedelta(hours=7))


@pytest.mark.parametrize(
    ("error", "is_away"),
    [(InvalidRequest("unconfigured table"), False), (OperationTimedOut(), True)],
)
def test_before_the_first_deployment_that_knows_of_them_there_are_no_other_counts(
    settings: Any, monkeypatch: pytest.MonkeyPatch, error: Exception, is_away: bool
) -> None:
    """But who can't ask doesn't know: to answer with the stream's rows would be a mixture."""

    async def prepare(*_: Any) -> Any:
        raise error

    monkeypatch.setattr(CassandraStore, "_prepare", prepare)
    asked = CassandraStore(settings).overlay("traffic")
    if is_away:
        with pytest.raises(StoreUnavailable):
            asyncio.run(asked)
    else:
        assert asyncio.run(asked) == Overlay()


def test_rows_of_another_count_are_read_from_their_own_partitions(
    settings: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked: list[tuple[Any, ...]] = []

    async def fetch(_: Any, __: str, values: tuple[Any, ...] = (), ___: Any = None) -> list[Any]:
        asked.append(values)
        return []

    monkeypatch.setattr(CassandraStore, "_fetch", fetch)
    store = CassandraStore(settings)
    asyncio.run(store.traffic(Window.HOUR, SPAN, 3))
    asyncio.run(store.pages_of(DAY, 3))
    asyncio.run(store.windows("job", ["n"], Part(DAY.date(), 7, [DAY], {}, 3), Budget(1)))
    assert {values[0] for values in asked[:-3]} == {"1h#3"}
    assert asked[-3:-1] == [(DAY + timedelta(milliseconds=3),)] * 2
    assert asked[-1][:2] == (DAY.date(), 30007)


@pytest.mark.cluster
def test_the_queries_fit_the_schema(settings: Any) -> None:
    async def scenario() -> None:
        async with connected(settings) as store:
            assert (await store.health()).total == 3
            assert await store.overlay("nothing") == Overlay()
            for window in Window:
                for generation in (0, 1):
                    assert await store.traffic(window, SPAN, generation) == []
                await store.extent(window)
            for generation in (0, 1):
                assert await store.pages_of(DAY, generation) == Pages(Counter())
            assert await store.dead_letters(SPAN) == DeadLetters({}, [])
            assert await store.late_events(SPAN.days()) == []
            await store.progress()

    asyncio.run(scenario())


JOB = Output(
    job="store_test",
    table="job_store_test",
    summary="A test's.",
    window_seconds=1800,
    slide_seconds=1800,
    offset_seconds=0,
    join_seconds=None,
    key={"visitor": "string", "site": "int"},
    values={"events": "bigint", "last": "timestamp"},
    approximate={},
    buckets=2,
    keep_seconds=3600,
    state=[],
)


@pytest.mark.cluster
def test_rows_of_a_declared_job_are_read_by_windows_by_key_and_by_pages(settings: Any) -> None:
    described = Described.model_validate_json(JOB.to_json())
    windows = [DAY + n * timedelta(minutes=30) for n in range(4)]
    rows = [
        {"window_start": start.replace(tzinfo=None), "visitor": visitor, "site": site}
        | {"events": 1, "last": start.replace(tzinfo=None)}
        for start in windows
        for visitor in "abc"
        for site in (1, 2)
    ]

    async def scenario() -> None:
        async with connected(settings) as store:
            session = store._connected()
            session.execute(JOB.create_table(settings.keyspace), timeout=30)
            try:
                names = ", ".join(f'"{name}"' for name in JOB.columns)
                marks = ", ".join("?" for _ in JOB.columns)
                insert = session.prepare(
                    f"INSERT INTO {settings.keyspace}.{JOB.table} ({names}) VALUES ({marks})"
                )
                for row in rows:
                    session.execute(insert, JOB.row(row, 1), timeout=30)

                async def read(key: dict[str, Any], rows: int = 100) -> list[tuple[Any, ...]]:
                    names, budget = ["visitor", "site", "last"], Budget(rows)
                    return [
                        row
                        for bucket in range(JOB.buckets)
                        for row in await store.windows(
                            JOB.table, names, Part(DAY.date(), bucket, windows[1:3], key), budget
                        )
                    ]

                inside = windows[1].replace(tzinfo=None), windows[2].replace(tzinfo=None)
                everything = await read({})
                assert sorted(everything) == sorted(
                    (row["visitor"], row["site"], row["last"])
                    for row in rows
                    if row["last"] in inside
                )
                assert sorted(await read({"visitor": "b", "site": 2})) == [
                    ("b", 2, start) for start in inside
                ]
                with pytest.raises(TooManyRows):
                    await read({}, rows=len(everything) - 1)

                async def pages(wanted: dict[str, Any], limit: int) -> list[dict[str, Any]]:
                    reader = RowReader(store, described, rows=3)
                    found: list[dict[str, Any]] = []
                    page = await reader.page(SPAN, wanted, None, limit)
                    while page.more:
                        found += [dict(row.values) for row in page.rows]
                        page = await reader.page(SPAN, wanted, page.more, limit)
                    return [*found, *(dict(row.values) for row in page.rows)]

                for wanted in ({}, {"visitor": "b"}, {"site": 2}, {"visitor": "b", "site": 2}):
                    paged = await pages(wanted, limit=2)
                    expected = [row for row in rows if wanted.items() <= row.items()]
                    assert sorted(map(place, paged)) == sorted(map(place, expected))
            finally:
                session.execute(f"DROP TABLE {settings.keyspace}.{JOB.table}", timeout=30)

    asyncio.run(scenario())


def place(row: Mapping[str, Any]) -> tuple[Any, ...]:
    return tuple(row[name] for name in ("window_start", "visitor", "site"))


@pytest.mark.cluster
def test_results_larger_than_a_page_are_whole(settings: Any) -> None:
    async def scenario() -> None:
        async with connected(settings) as store:
            session = store._connected()
            insert = session.prepare(
                "INSERT INTO millrace.pages (bucket, url, page_views, version) VALUES (?, ?, 1, 7)"
            )
            try:
                for first in range(0, PAGES, 500):
                    batch = BatchStatement(BatchType.UNLOGGED)
                    for page in range(first, first + 500):
                        batch.add(insert, (DAY, f"/{page}"))
                    session.execute(batch, timeout=30)
                assert len((await store.pages_of(DAY)).views) == PAGES
                session.execute(
                    "INSERT INTO millrace.page_lists (bucket, error, other, since)"
                    " VALUES (%s, 2, 9, 8)",
                    (DAY,),
                )
                assert await store.pages_of(DAY) == Pages(Counter(), 2, 9)
            finally:
                for table in ("pages", "page_lists"):
                    delete = f"DELETE FROM millrace.{table} WHERE bucket = %s"
                    session.execute(delete, (DAY,), timeout=30)

    asyncio.run(scenario())


def test_rows_have_their_columns_names_and_one_type_for_all_answers() -> None:
    [row], [other] = (rows_of(["window_start", "requests"], [(1, n)]) for n in (2, 3))
    assert (row.window_start, row.requests, other.requests) == (1, 2, 3)
    assert type(row) is type(other)
