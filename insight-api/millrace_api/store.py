"""The store of results: what the API asks of it, and the one that asks Cassandra."""

import asyncio
import logging
import sys
from collections import Counter, namedtuple
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, date, datetime
from functools import cache
from typing import Any, Protocol

from cassandra import ConsistencyLevel, DriverException, InvalidRequest, RequestExecutionException
from cassandra.cluster import (
    EXEC_PROFILE_DEFAULT,
    Cluster,
    ExecutionProfile,
    NoHostAvailable,
    ResponseFuture,
    ResultSet,
    Session,
)
from cassandra.policies import (
    ConstantSpeculativeExecutionPolicy,
    DCAwareRoundRobinPolicy,
    ExponentialReconnectionPolicy,
    TokenAwarePolicy,
)
from cassandra.query import PreparedStatement

from millrace_api.ranges import HOUR, Span, Window, cut
from millrace_api.settings import Settings
from millrace_api.shared import Shared, each
from millrace_api.sketches import union
from millrace_shared import job_progress, job_states
from millrace_shared.generations import (
    NONE,
    OVERLAY,
    STREAM,
    TRAFFIC,
    Overlay,
    bucket_of,
    hour_of,
    window_of,
)

log = logging.getLogger(__name__)

STATUS_CLASSES = ("2xx", "3xx", "4xx", "5xx", "other")
# Of one day that are looked at. A producer that sends nothing else leaves a million of them.
MOST_DEAD_LETTERS = 5000
SAMPLES_SECONDS = 1.0
CONNECT_AGAIN_SECONDS = 2.0


class StoreUnavailable(Exception):
    """No quorum answered in time. Asking again later is the right thing to do."""


Sketch = bytes  # a name that the field `bytes` doesn't hide


@dataclass(frozen=True, kw_only=True)
class Measures:
    """What was counted; ``visitors`` is a sketch, ``version`` the newest that is in it."""

    requests: int
    page_views: int
    bytes: int
    status: dict[str, int]
    visitors: Sketch | None
    version: int


def add_up(parts: Sequence[Measures]) -> Measures:
    """All parts as one. A visitor who is in several of them is one visitor."""
    return Measures(
        requests=sum(part.requests for part in parts),
        page_views=sum(part.page_views for part in parts),
        bytes=sum(part.bytes for part in parts),
        status={name: sum(part.status[name] for part in parts) for name in STATUS_CLASSES},
        visitors=union(part.visitors for part in parts),
        version=max((part.version for part in parts), default=0),
    )


@dataclass(frozen=True)
class Pages:
    """An hour's pages: views, too high by ``error`` at most, and those that may be of others."""

    views: Counter[str]
    error: int = 0
    other: int = 0

    @property
    def most_unlisted(self) -> int:
        """Views of a page that isn't listed: those that are have more than ``error`` for sure."""
        return 2 * self.error


@dataclass(frozen=True, kw_only=True)
class TrafficRow(Measures):
    """One window of traffic as the job last wrote it."""

    window: Window
    start: datetime

    @property
    def end(self) -> datetime:
        return self.start + self.window.length


@dataclass(frozen=True)
class DeadLetter:
    """An event that could not be read, as the archive job judged it."""

    id: str
    reason: str
    size: int
    preview: str
    received: datetime

    @property
    def place(self) -> tuple[datetime, str]:
        return self.received, self.id


@dataclass(frozen=True)
class LateEvents:
    """Events of a day that came after their window was closed and are missing from it."""

    day: date
    window: str
    events: int


@dataclass(frozen=True)
class JobProgress:
    """The last committed batch of a job."""

    job: str
    epoch: int
    batch: int
    watermark: datetime | None
    max_event_time: datetime | None
    updated: datetime
    input_rows_per_second: float
    version: str
    checkpoint: str


@dataclass(frozen=True)
class JobState:
    """What a job does, as the driver that leads said at ``updated``.

    ``trouble`` is why it doesn't run as it should; a job that has failed has ``failed_since``, and
    the name of the ``runbook`` that says what to do.
    """

    job: str
    state: str
    trouble: str
    failed_since: datetime | None
    runbook: str
    updated: datetime


@dataclass(frozen=True)
class JobWork:
    """What a job's driver has done since it began to lead."""

    job: str
    batches: int
    batch_seconds: float
    late_events: int


@dataclass(frozen=True)
class DeadLetters:
    """How many for each reason, and samples of them, the latest first.

    ``complete`` is false where a day has more samples than are looked at.
    """

    counts: dict[str, int]
    samples: list[DeadLetter]
    complete: bool = True


@dataclass(frozen=True)
class StoreHealth:
    """Nodes as the driver sees them."""

    up: int
    total: int


class TooManyRows(Exception):
    """What was asked for has more rows than one request may read."""


class Budget:
    """How many rows one request may still read."""

    def __init__(self, rows: int) -> None:
        self.left = rows

    def take(self, rows: int) -> None:
        """Raises TooManyRows when there were not so many left."""
        self.left -= rows
        if self.left < 0:
            raise TooManyRows


@dataclass(frozen=True)
class Part:
    """Windows of one partition of a declared job's rows, which start at these times.

    ``key`` is a whole one, whose rows alone are meant, or empty.
    """

    day: date
    bucket: int
    starts: Sequence[datetime]
    key: Mapping[str, Any] = field(default_factory=dict)
    generation: int = STREAM

    @property
    def partition(self) -> tuple[date, int]:
        return self.day, bucket_of(self.bucket, self.generation)


@dataclass(frozen=True)
class Stretch:
    """Rows of one partition, of a day and a bucket, whose windows start at ``oldest`` or later.

    ``below`` is where they end, that place not included: the start of a window, or that and the key
    of a row in it, by the columns' names in the table's order.
    """

    partition: tuple[date, int]
    oldest: datetime
    below: Mapping[str, Any]


class Store(Protocol):
    """What the API asks of a store. Every method may raise ``StoreUnavailable``."""

    async def overlay(self, rows: str) -> Overlay:
        """Which generation's rows readers see: of traffic, or of a declared job's table."""

    async def traffic(
        self, window: Window, span: Span, generation: int = STREAM
    ) -> list[TrafficRow]:
        """The windows of a generation that start in the span, oldest first."""

    async def extent(self, window: Window) -> Span | None:
        """From the start of the first window to the end of the last, if there is any."""

    async def pages_of(self, hour: datetime, generation: int = STREAM) -> Pages:
        """The pages of an hour in a generation, none if nothing was viewed."""

    async def page_error(self, hour: datetime) -> int:
        """By how much a page's views may be off; 0 while all are counted exactly."""

    async def dead_letters(self, span: Span) -> DeadLetters:
        """Dead letters received in the span, of whole minutes; samples are the latest first."""

    async def dead_letter_counts(self, span: Span) -> dict[str, int]:
        """How many for each reason; the span is of whole minutes."""

    async def quarantined(self) -> dict[str, int]:
        """How many records each job leaves out, of those that leave out any."""

    async def late_events(self, days: Iterable[date]) -> list[LateEvents]:
        """Late events of each day and size of window that has any, oldest first."""

    async def progress(self) -> list[JobProgress]:
        """Every job that has committed a batch, by name: all nodes are asked."""

    async def progress_of(self, job: str) -> JobProgress | None:
        """One job's, where it has committed a batch: what questions ask before their rows."""

    async def states(self) -> dict[str, JobState]:
        """What each job does, by its name: as it was told last, however long ago."""

    async def work(self) -> list[JobWork]:
        """Every job whose driver tells."""

    async def descriptions(self) -> dict[str, str]:
        """What each declared job says of its rows, as JSON, by its name."""

    async def newest(
        self, table: str, columns: Sequence[str], stretch: Stretch, limit: int
    ) -> list[tuple[Any, ...]]:
        """Rows of a declared job, the newest windows first; those of one by key, backwards."""

    async def windows(
        self, table: str, columns: Sequence[str], part: Part, budget: Budget
    ) -> list[tuple[Any, ...]]:
        """Rows of a declared job. Raises TooManyRows."""

    async def health(self) -> StoreHealth:
        """Reads with a quorum, then says how many nodes are up."""


PROGRESS = job_progress.select()


class CassandraStore:
    """Reads with LOCAL_QUORUM, through any node that answers.

    The driver calls back on threads of its own; ``_fetch`` carries results over to the event loop.
    Statements are prepared when first used, because the API may start before the schema is there.
    """

    def __init__(self, settings: Settings) -> None:
        self._settings = settings
        self._session: Session | None = None
        self._prepared: dict[str, PreparedStatement] = {}
        self._preparing = asyncio.Lock()
        self._samples = Shared(keep_seconds=SAMPLES_SECONDS)

    async def connect_forever(self) -> None:
        """Try until one node answers. From then on the driver reconnects by itself."""
        while self._session is None:
            try:
                self._session = await asyncio.to_thread(self._connect)
            except (DriverException, NoHostAvailable, OSError) as error:
                log.warning("Cassandra is away, trying again: %s", error)
                await asyncio.sleep(CONNECT_AGAIN_SECONDS)

    def close(self) -> None:
        if self._session is not None:
            self._session.cluster.shutdown()

    def _connect(self) -> Session:
        settings = self._settings
        profile = ExecutionProfile(
            load_balancing_policy=TokenAwarePolicy(DCAwareRoundRobinPolicy(settings.datacenter)),
            consistency_level=ConsistencyLevel.LOCAL_QUORUM,
            request_timeout=settings.request_timeout_seconds,
            row_factory=rows_of,
            # A paused coordinator keeps its connection open: ask another one before the time is up.
            speculative_execution_policy=ConstantSpeculativeExecutionPolicy(
                delay=settings.speculate_after_seconds, max_attempts=2
            ),
        )
        cluster = Cluster(
            [host for host, _ in settings.cassandra],
            port=settings.cassandra[0][1],
            execution_profiles={EXEC_PROFILE_DEFAULT: profile},
            reconnection_policy=ExponentialReconnectionPolicy(base_delay=0.5, max_delay=10),
            connect_timeout=settings.request_timeout_seconds,
            idle_heartbeat_interval=5,
            idle_heartbeat_timeout=5,
            protocol_version=5,
        )
        try:
            return cluster.connect()
        except BaseException:
            cluster.shutdown()
            raise

    async def overlay(self, rows: str) -> Overlay:
        try:
            found = await self._fetch(OVERLAY, (rows,))
        except StoreUnavailable as error:
            if isinstance(error.__cause__, InvalidRequest):
                return NONE  # the table is made by the first deployment that writes it
            raise
        return Overlay.parse(found[0].content, found[0].revision) if found else NONE

    async def traffic(
        self, window: Window, span: Span, generation: int = STREAM
    ) -> list[TrafficRow]:
        query = (
            "SELECT window_start, requests, page_views, bytes, status_2xx, status_3xx, status_4xx,"
            " status_5xx, status_other, visitors, version FROM {keyspace}.traffic"
            " WHERE window = ? AND bucket = ? AND window_start >= ? AND window_start < ?"
        )
        rows = await self._fetch_each(
            query,
            [
                (window_of(window.value, generation), day, span.start, span.end)
                for day in span.days()
            ],
        )
        return [_traffic_row(window, row) for row in rows]

    async def extent(self, window: Window) -> Span | None:
        # A few partitions a day: listing them all stays cheap for years.
        overlay = await self.overlay(TRAFFIC)
        partitions = await self._fetch("SELECT DISTINCT window, bucket FROM {keyspace}.traffic")
        query = (
            "SELECT window_start FROM {keyspace}.traffic WHERE window = ? AND bucket = ?"
            " ORDER BY window_start %s LIMIT 1"
        )
        found: list[datetime] = []
        for generation in {STREAM, *(layer.generation for layer in overlay.layers)}:
            name = window_of(window.value, generation)
            days = sorted(row.bucket.date() for row in partitions if row.window == name)
            if days:
                ends = await asyncio.gather(
                    self._fetch(query % "ASC", (name, days[0])),
                    self._fetch(query % "DESC", (name, days[-1])),
                )
                found += [_utc(rows[0].window_start) for rows in ends]
        return Span(min(found), max(found) + window.length) if found else None

    async def pages_of(self, hour: datetime, generation: int = STREAM) -> Pages:
        bucket = hour_of(hour, generation)
        # The list first: rows that are newer than it are in it, too.
        found = await self._fetch(
            "SELECT error, other, since FROM {keyspace}.page_lists WHERE bucket = ?", (bucket,)
        )
        rows = await self._fetch(
            "SELECT url, page_views, version FROM {keyspace}.pages WHERE bucket = ?", (bucket,)
        )
        # Hours of earlier versions have no list: all of their pages are counted exactly.
        error, other, since = found[0] if found else (0, 0, 0)
        # The same pages are viewed hour after hour: each URL is held once.
        views = {sys.intern(row.url): row.page_views for row in rows if row.version >= since}
        return Pages(Counter(views), error, other)

    async def page_error(self, hour: datetime) -> int:
        found = await self._fetch(
            "SELECT error FROM {keyspace}.page_lists WHERE bucket = ?", (hour,)
        )
        return found[0].error if found else 0

    async def dead_letters(self, span: Span) -> DeadLetters:
        counts = await self.dead_letter_counts(span)
        by_day = await each(self._dead_letter_samples, list(span.days()))
        samples = [sample for day in by_day for sample in day]
        inside = [sample for sample in samples if span.start <= sample.received < span.end]
        return DeadLetters(
            counts,
            sorted(inside, key=lambda sample: sample.place, reverse=True),
            complete=all(len(day) < MOST_DEAD_LETTERS for day in by_day),
        )

    async def _dead_letter_samples(self, day: date) -> list[DeadLetter]:
        """A day has thousands, in no order; whoever asks in the same second gets the same."""

        async def read() -> list[DeadLetter]:
            rows = await self._fetch(
                "SELECT id, reason, size, preview, kafka_timestamp FROM {keyspace}.dead_letters"
                " WHERE bucket = ? LIMIT ?",
                (day, MOST_DEAD_LETTERS),
            )
            return [
                DeadLetter(row.id, row.reason, row.size, row.preview, _utc(row.kafka_timestamp))
                for row in rows
            ]

        return await self._samples.ask(day, read)

    async def dead_letter_counts(self, span: Span) -> dict[str, int]:
        # A row for each batch would be a hundred a minute: they are added up where they are.
        rows = await self._fetch_each(
            "SELECT reason, SUM(records) AS records FROM {keyspace}.dead_letter_counts"
            " WHERE bucket = ? AND minute >= ? AND minute < ? GROUP BY bucket, minute, reason",
            [(hour.start.date(), hour.start, hour.end) for hour in cut(span, HOUR)],
        )
        counts: Counter[str] = Counter()
        for row in rows:
            counts[row.reason] += row.records
        return dict(counts)

    async def quarantined(self) -> dict[str, int]:
        rows = await self._fetch(
            "SELECT job, COUNT(*) AS records FROM {keyspace}.quarantine GROUP BY job"
        )
        return {row.job: row.records for row in rows}

    async def progress(self) -> list[JobProgress]:
        found = [_job_progress(row) for row in await self._fetch(PROGRESS)]
        return sorted((job for job in found if job), key=lambda job: job.job)

    async def progress_of(self, job: str) -> JobProgress | None:
        rows = await self._fetch(f"{PROGRESS} WHERE job = ?", (job,))
        return _job_progress(rows[0]) if rows else None

    async def states(self) -> dict[str, JobState]:
        found = await self._fetch(job_states.SELECT)
        return {row.job: _job_state(row) for row in found}

    async def work(self) -> list[JobWork]:
        rows = await self._fetch(
            "SELECT job, batches, batch_ms, late_events FROM {keyspace}.job_work"
        )
        return [JobWork(row.job, row.batches, row.batch_ms / 1000, row.late_events) for row in rows]

    async def late_events(self, days: Iterable[date]) -> list[LateEvents]:
        rows = await self._fetch_each(
            "SELECT bucket, window, SUM(events) AS events FROM {keyspace}.late_events"
            " WHERE bucket = ? GROUP BY bucket, window",
            [(day,) for day in days],
        )
        events: Counter[tuple[date, str]] = Counter()
        for row in rows:
            events[row.bucket.date(), row.window] += row.events
        return [LateEvents(day, window, count) for (day, window), count in sorted(events.items())]

    async def descriptions(self) -> dict[str, str]:
        rows = await self._fetch("SELECT job, description FROM {keyspace}.job_outputs")
        return {row.job: row.description for row in rows}

    async def newest(
        self, table: str, columns: Sequence[str], stretch: Stretch, limit: int
    ) -> list[tuple[Any, ...]]:
        below, marks = _named(stretch.below), ", ".join("?" for _ in stretch.below)
        query = (
            f'SELECT {_named(columns)} FROM {{keyspace}}."{table}" WHERE day = ? AND bucket = ?'
            f' AND ("window_start") >= (?) AND ({below}) < ({marks})'
            " ORDER BY window_start DESC LIMIT ?"
        )
        values = (*stretch.partition, stretch.oldest, *stretch.below.values(), limit)
        return await self._fetch(query, values)

    async def windows(
        self, table: str, columns: Sequence[str], part: Part, budget: Budget
    ) -> list[tuple[Any, ...]]:
        named = "".join(f' AND "{name}" = ?' for name in part.key)
        query = (
            f'SELECT {_named(columns)} FROM {{keyspace}}."{table}"'
            f" WHERE day = ? AND bucket = ? AND window_start IN ?{named}"
        )
        values = (*part.partition, part.starts, *part.key.values())
        return await self._fetch(query, values, budget)

    async def health(self) -> StoreHealth:
        # system_schema is local to each node; a quorum must be asked about replicated data.
        await self._fetch(job_progress.select("job"))
        hosts = self._connected().cluster.metadata.all_hosts()
        return StoreHealth(up=sum(host.is_up is True for host in hosts), total=len(hosts))

    async def _fetch_each(self, query: str, bindings: Sequence[tuple[Any, ...]]) -> list[Any]:
        """The rows of the query for each binding, in the bindings' order."""
        found = await each(lambda values: self._fetch(query, values), bindings)
        return [row for rows in found for row in rows]

    async def _fetch(
        self, query: str, values: tuple[Any, ...] = (), budget: Budget | None = None
    ) -> list[Any]:
        """All rows of all pages, as far as the budget goes."""
        try:
            statement = await self._prepare(query.format(keyspace=self._settings.keyspace))
            return await self._pages(statement, values, budget)
        except InvalidRequest as error:
            raise StoreUnavailable(f"the schema is not there yet: {error}") from error
        except (DriverException, RequestExecutionException, NoHostAvailable) as error:
            raise StoreUnavailable(str(error)) from error

    async def _pages(
        self, statement: PreparedStatement, values: tuple[Any, ...], budget: Budget | None
    ) -> list[Any]:
        session = self._connected()
        rows: list[Any] = []
        next_page = None
        while True:
            more, next_page = await _page(
                session.execute_async(statement, values, paging_state=next_page)
            )
            if budget:
                budget.take(len(more))
            rows += more
            if next_page is None:
                return rows

    async def _prepare(self, query: str) -> PreparedStatement:
        async with self._preparing:
            if query not in self._prepared:
                statement = await asyncio.to_thread(self._connected().prepare, query)
                statement.is_idempotent = True  # a read: may be sent to a second node
                self._prepared[query] = statement
        return self._prepared[query]

    def _connected(self) -> Session:
        if self._session is None:
            raise StoreUnavailable("not connected to Cassandra yet")
        return self._session


def rows_of(columns: Sequence[str], values: Iterable[Sequence[Any]]) -> list[Any]:
    """Rows as named tuples. The driver's own factory makes a class for each answer: a fifth of the
    API's computing where there are many small ones."""
    return [*map(_row_type(tuple(columns))._make, values)]


@cache  # there are as many as there are queries
def _row_type(columns: tuple[str, ...]) -> Any:
    return namedtuple("Row", columns, rename=True)


async def _page(response: ResponseFuture) -> tuple[list[Any], bytes | None]:
    """Wait on the event loop for one page; its rows, and where the next page begins.

    The driver calls back once per answer, so twice when a speculative request was answered too. The
    first one counts. For the same reason its own paging isn't used: an answer that comes late would
    be taken for the next page.
    """
    loop = asyncio.get_running_loop()
    done: asyncio.Future[tuple[list[Any], bytes | None]] = loop.create_future()

    def on_rows(rows: list[Any] | None) -> None:
        next_page = ResultSet(response, rows).paging_state
        loop.call_soon_threadsafe(_settle, done, (rows or [], next_page), None)

    def on_error(error: BaseException) -> None:
        loop.call_soon_threadsafe(_settle, done, None, error)

    response.add_callbacks(on_rows, on_error)
    return await done


def _settle(done: asyncio.Future[Any], result: Any, error: BaseException | None) -> None:
    """Give the future its outcome, unless it has one or was cancelled."""
    if done.done():
        return
    if error is None:
        done.set_result(result)
    else:
        done.set_exception(error)


def _named(columns: Iterable[str]) -> str:
    return ", ".join(f'"{name}"' for name in columns)


def _job_progress(row: Any) -> JobProgress | None:
    """None until a job's first heartbeat: its driver has only claimed an epoch."""
    if not row.updated:
        return None
    return JobProgress(
        row.job,
        row.epoch,
        row.batch,
        row.watermark and _utc(row.watermark),
        row.max_event_time and _utc(row.max_event_time),
        _utc(row.updated),
        row.input_rows_per_second or 0.0,
        row.version or "",
        row.checkpoint or "",
    )


def _job_state(row: Any) -> JobState:
    return JobState(
        row.job,
        row.state,
        row.trouble or "",
        row.failed_since and _utc(row.failed_since),
        row.runbook or "",
        _utc(row.updated),
    )


def _traffic_row(window: Window, row: Any) -> TrafficRow:
    return TrafficRow(
        window=window,
        start=_utc(row.window_start),
        requests=row.requests,
        page_views=row.page_views,
        bytes=row.bytes,
        status={name: getattr(row, f"status_{name}") for name in STATUS_CLASSES},
        visitors=row.visitors,
        version=row.version,
    )


def _utc(moment: datetime) -> datetime:
    """The driver gives naive times, which are UTC."""
    return moment.replace(tzinfo=UTC)
