"""A small world around the real drivers: two of them, and all that they talk to, in memory.

A driver is the real `runner.serve` on a thread of its own, with its jobs, sinks, lease and epochs;
only one runs at a time. Each request that leaves it is a moment at which an `Event` may happen, so
moments and events are a whole history, and the same ones are the same history again.
"""

import enum
import json
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future
from contextlib import ExitStack, contextmanager
from datetime import datetime
from functools import partial
from types import SimpleNamespace
from typing import Any
from unittest.mock import patch

from millrace_jobs import retries
from millrace_jobs.config import Config
from millrace_jobs.driver import work
from millrace_jobs.inputs.continuity import CheckpointMismatch
from millrace_jobs.leader import failures, job_states, running, supervisor, turns
from millrace_jobs.leader.failures import Attempts
from millrace_jobs.leadership import coordination, lease
from millrace_jobs.leadership.coordination import Coordination
from millrace_jobs.leadership.identity import Identity
from millrace_jobs.leadership.lease import Lease
from millrace_jobs.programs import archive as archive_job
from millrace_jobs.programs import traffic as traffic_job
from millrace_jobs.query import heartbeat, late_events, pacing
from millrace_jobs.sinks import archive, cassandra, concurrently, dead_letters, positions, results
from millrace_jobs.standby import wait
from pyspark.sql import Row

from tests.jobs import fakes
from tests.jobs.samples import NAMES, STREAM, settings_of

RECORDS = 9
MALFORMED = {3, 6}
LONGEST_BATCH = 3
EXACT = 5  # so many records' pages are counted exactly
PROCESSES = 30
HANGS_SECONDS = 120.0
REQUESTS = 2000  # a history that takes more never ends
SLEEP_SECONDS = 3.0
RESTS = 4  # sleeps without work after which a driver has done, and told, all
MINUTES = [datetime(2026, 1, 1, 0, minute) for minute in range(2)]
GROWS = ("requests", "page_views", "version", "epoch", '"batch"')  # columns that a reader trusts

JOBS = ["traffic", "archive"]
CONFIG = Config(
    application="insights",
    version="v1",
    jobs=JOBS,
    names=NAMES,
    zookeeper="",
    kafka="",
    cassandra=[],
    cassandra_port=0,
    sentinels=[],
    lease_seconds=2.5,
    catch_up_seconds=0,
    web_port=0,
    checkpoints="/checkpoints",
    archives="/archives",
    streams={STREAM.name: STREAM},
    lookups={},
    settings={job: settings_of(job) for job in JOBS},
)
ORDER = f"{NAMES.zookeeper.applications}/{CONFIG.application}/desired"
STOP = json.dumps({"state": "stopped", "version": CONFIG.version}).encode()


class Event(enum.Enum):
    """What may happen when the driver that runs makes a request."""

    CRASH = "it dies; another process takes its place in line"
    FREEZE = "it stops; its session ends, and the other one runs"
    SWITCH = "it waits; the other one goes on, wherever it was frozen"
    LOSE_REQUEST = "the request doesn't arrive"
    LOSE_REPLY = "the request takes effect, and nobody says so"
    EXPIRE = "Kafka aborts the transactions that are open"
    ROLL_BACK = "all drivers die, and a checkpoint is an older copy of itself"
    ROLL_BACK_UNTOLD = (
        "all drivers die, and traffic's checkpoint is of before what it has yet to tell"
    )
    LOSE_CHECKPOINT = "all drivers die, and a checkpoint is gone"
    RESTORE_ZOOKEEPER = "all drivers die, and the epochs that were given out are forgotten"


DAMAGES = (
    Event.ROLL_BACK,
    Event.ROLL_BACK_UNTOLD,
    Event.LOSE_CHECKPOINT,
    Event.RESTORE_ZOOKEEPER,
)
History = Mapping[int, Event]  # by the number of the request
Fault = tuple[str, str]  # plane, what is wrong


class Crash(BaseException):
    """Ends a driver's thread; nothing that it does on its way out reaches the world."""


class Driver:
    """One process: a thread that runs while it has the turn."""

    def __init__(self, world: "World") -> None:
        self.world = world
        self.is_dead = self.is_frozen = self.has_ended = False
        self.is_waiting: Callable[[], bool] = lambda: False
        self.client = fakes.Kazoo(world.zookeeper, partial(world.wait, self))
        self.lease: Lease | None = None
        self.queries: list[fakes.Query] = []
        self.slept = 0.0
        self._turn = threading.Semaphore(0)
        threading.Thread(target=self._run, daemon=True).start()

    @property
    def can_run(self) -> bool:
        return not self.has_ended and (self.is_dead or not self.is_waiting())

    def give_turn(self) -> None:
        self._turn.release()

    def await_turn(self) -> None:
        self._turn.acquire()
        self.is_frozen = False
        if self.is_dead:
            raise Crash

    def sleep(self) -> None:
        """Meanwhile its queries run."""
        self.slept += SLEEP_SECONDS
        for query in self.queries:
            query.trigger()
        running = [query for query in self.queries if query.isActive]
        if len(running) == len(JOBS) and all(query.rests >= RESTS for query in running):
            self.world.stop()

    def _run(self) -> None:
        here.driver = self
        try:
            self.await_turn()
            identity = Identity("application", id(self), "host", CONFIG.version, 1, 1)
            znodes, seconds = NAMES.zookeeper, CONFIG.lease_seconds
            mine = Coordination("", znodes, CONFIG.application, identity, seconds)
            self.lease = mine.lease
            spark: Any = fakes.Spark(self.world.hdfs)
            workers: Any = SimpleNamespace(
                complete=lambda: None, addresses=frozenset, verify=lambda: None
            )
            work.serve(CONFIG, spark, workers, mine, rehearsing=False)
        except (Exception, Crash) as end:
            self.world.ends.append(end)
        finally:
            self.has_ended = True
            self.world.zookeeper.end(self.client)
            self.world.go_on_after(self)


class World:
    """Runs one history, from the first driver's start until all input is everywhere."""

    def __init__(self, history: History) -> None:
        self.history = dict(history)
        self.now = 0.0
        self.requests = 0
        self.faults: list[Fault] = []  # the first one ends the history
        self.ends: list[BaseException] = []  # of drivers
        self.zookeeper = fakes.ZooKeeper(self.request)
        self.kafka = fakes.Kafka(self.request, self._see_record)
        self.cassandra = fakes.Cassandra(self.request, self._see_row)
        self.delta = fakes.Delta(self.request, self._see_append)
        self.hdfs = fakes.Hdfs(self.request)
        self.archived: list[int] = []
        self.published: dict[str, dict[str, Any]] = {}  # the newest record of each key
        self._arrived = 1
        self._is_stopping = False
        self._intact: dict[str, str] = {}
        self._end = threading.Event()
        self._drivers = [Driver(self), Driver(self)]

    def run(self) -> list[Fault]:
        self._drivers[0].give_turn()
        if not self._end.wait(HANGS_SECONDS):
            self.faults.append(("drivers", "they wait for each other"))
        return self.faults or list(self._look())

    def request(self, effect: Callable[[], Any], lost: Exception) -> Any:
        """One request of the driver that runs, and its answer, or what the client says of none."""
        driver = here.driver
        if driver.is_dead or self.faults:
            raise Crash
        self.requests += 1
        if self.requests > REQUESTS:
            self._fault("drivers", "they never end")
        event = self.history.get(self.requests) if not self._is_stopping else None
        match event:
            case Event.CRASH:
                self._kill(driver)
            case Event.FREEZE:
                self._freeze(driver)
            case Event.SWITCH:
                self._switch(driver)
            case Event.EXPIRE:
                self.kafka.expire()
            case Event.LOSE_REQUEST:
                raise lost
            case _ if event in DAMAGES:
                self._damage(event)
                self._kill(*self._drivers)
        answer = effect()
        if event is Event.LOSE_REPLY:
            raise lost
        return answer

    def wait(self, driver: Driver, condition: Callable[[], bool]) -> None:
        """Others run until it is true."""
        driver.is_waiting = lambda: not condition()
        while not condition():
            self._switch(driver)
        driver.is_waiting = lambda: False

    def arrived(self, start: int) -> int:
        """Each time that somebody asks, there is another record."""
        self._arrived = min(RECORDS, self._arrived + 1)
        return min(self._arrived, start + LONGEST_BATCH)

    def stop(self) -> None:
        """All is done: whoever leads ends, and then whoever is left."""
        self._is_stopping = True
        self.zookeeper.nodes[ORDER] = fakes.Node(STOP)

    def put_checkpoints_back(self) -> None:
        """As an operator does whose jobs refuse what they find."""
        self.hdfs.files |= self._intact
        self._intact = {}

    def go_on_after(self, driver: Driver) -> None:
        """It has ended: another process takes its place, unless there is nothing left to do."""
        other = self._other(driver)
        if len(self.ends) > PROCESSES:
            self.faults.append(("drivers", f"they end and end, at last by {self.ends[-1]!r}"))
        if not (self._is_stopping or self.faults):
            self._drivers[self._drivers.index(driver)] = Driver(self)
            other = other if other.can_run else self._other(other)
        if other.has_ended:
            self._end.set()
        else:
            other.give_turn()

    def _other(self, driver: Driver) -> Driver:
        return self._drivers[1 - self._drivers.index(driver)]

    def _switch(self, driver: Driver) -> None:
        other = self._other(driver)
        if other.can_run:
            other.give_turn()
            driver.await_turn()
        elif self.faults:
            raise Crash

    def _kill(self, *drivers: Driver) -> None:
        for driver in drivers:
            driver.is_dead = True
            self.zookeeper.end(driver.client)
        raise Crash

    def _freeze(self, driver: Driver) -> None:
        self.zookeeper.end(driver.client)
        self.now += CONFIG.lease_seconds
        driver.is_frozen = True
        other = self._other(driver)
        if other.lease and not other.is_frozen:
            other.lease.renew()
        self._switch(driver)

    def _damage(self, event: Event) -> None:
        """The archive can't tell a copy that isn't older than its last heartbeat (see ADR 11)."""
        if event is Event.RESTORE_ZOOKEEPER:
            for path in [path for path in self.zookeeper.nodes if path.endswith("/epoch")]:
                del self.zookeeper.nodes[path]
            return
        job = "traffic" if event is Event.ROLL_BACK_UNTOLD else JOBS[self.requests % len(JOBS)]
        told = self._told(job)
        kept = {Event.ROLL_BACK: told, Event.ROLL_BACK_UNTOLD: told + 1}.get(event, 0)
        if told < 0 or self._intact:
            return  # it has told nothing yet, or is damaged already
        self._intact = {p: text for p, text in self.hdfs.files.items() if is_in(job, p)}
        for path in self._intact:
            name = path.rpartition("/")[2]
            if not kept or (name.isdecimal() and int(name) >= kept):
                del self.hdfs.files[path]

    def _told(self, job: str) -> int:
        """The batch of the job's last heartbeat."""
        row = self.cassandra.rows("job_progress").get((job,), {})
        return row.get('"batch"', -1)

    # -- What readers see

    def _fault(self, plane: str, what: str) -> None:
        self.faults.append((plane, what))
        raise Crash

    def is_stuck(self, driver: Driver) -> None:
        if driver.lease and not driver.is_dead and self.zookeeper.leads(driver.client):
            self._fault("archive", "its driver waits for ever")
        raise RuntimeError("a driver that doesn't lead waits until its process ends")

    def _see_row(self, table: str, before: dict[str, Any], after: dict[str, Any]) -> None:
        for name in GROWS:
            if name in before and after[name] < before[name]:
                self._fault(table, f"{name} went back to {after[name]} from {before[name]}")

    def _see_record(self, record: dict[str, Any]) -> None:
        name, seen = record["key"], (count_of(record), record["version"])
        before = self.published.get(name)
        then = (count_of(before), before["version"]) if before else (0, 0)
        is_newer = seen[0] > then[0] if "requests" in record else seen[0] >= then[0]
        if not (is_newer and seen[1] > then[1]):
            self._fault("results", f"{name}: {seen} follows {then}")
        self.published[name] = record

    def _see_append(self, offsets: list[int]) -> None:
        if twice := set(offsets) & set(self.archived):
            self._fault("archive", f"{twice} are there twice")
        self.archived += offsets

    def _look(self) -> Iterator[Fault]:
        """At the end everything is as if nothing had happened."""
        truth = counts(range(RECORDS))
        rows = self.cassandra.rows("traffic").values()
        stored = {(row["window"], row["window_start"]): row["requests"] for row in rows}
        if stored != truth:
            yield "traffic", f"{stored} ≠ {truth}"
        pages = list(self.cassandra.rows("pages").values())
        [listed] = self.cassandra.rows("page_lists").values()
        if wrong := wrong_list(pages, listed):
            yield "pages", wrong
        published = sorted(r["requests"] for r in self.published.values() if "requests" in r)
        if published != sorted(truth.values()):
            yield "results", f"{published} ≠ {sorted(truth.values())}"
        pages = [record for record in self.published.values() if "url" in record]
        [listed] = (record for record in self.published.values() if "since" in record)
        if wrong := wrong_list(pages, listed):
            yield "results", wrong
        if set(self.archived) != set(range(RECORDS)) - MALFORMED:
            yield "archive", f"{sorted(self.archived)}"
        letters = self.cassandra.rows("dead_letter_counts").values()
        samples = self.cassandra.rows("dead_letters")
        if not sum(row["records"] for row in letters) == len(samples) == len(MALFORMED):
            yield "dead letters", f"{letters}, {samples}"
        for job in JOBS:
            newest = self.hdfs.numbers(f"{folder(job)}/commits")[-1]
            if self._told(job) != newest:
                yield "job_progress", f"{job}: {self._told(job)} ≠ {newest}"


# -- What the jobs compute


def folder(job: str) -> str:
    return f"{CONFIG.checkpoints}/{CONFIG.settings[job].checkpoint}"


def is_in(job: str, path: str) -> bool:
    return path.startswith(f"{folder(job)}/")


Key = tuple[str, datetime]


def counts(offsets: range) -> Counter[Key]:
    """Events, each a page view, by minute and by hour."""
    valid = [offset for offset in offsets if offset not in MALFORMED]
    by_minute = Counter(("1m", MINUTES[offset % 2]) for offset in valid)
    return by_minute + Counter(("1h", MINUTES[0]) for _ in valid)


def page_views(offsets: range) -> Counter[str]:
    return Counter(f"/{offset % 3}" for offset in offsets if offset not in MALFORMED)


def count_of(record: dict[str, Any]) -> int:
    return record.get("requests", record.get("page_views", 0))


def sketch(read: range) -> tuple[dict[str, int], int]:
    """Pages and their error. Of a batch that runs again it may be another one: a sketch that isn't
    exact any more depends on the order of its input."""
    pages = page_views(range(read.stop))
    if read.stop <= EXACT:
        return pages, 0
    attempt = here.driver.world.requests
    dropped = f"/{attempt % 3}"
    return {url: n for url, n in pages.items() if url != dropped}, 1 + attempt % 2


def wrong_list(pages: Iterable[dict[str, Any]], listed: dict[str, Any]) -> str:
    """What is wrong with a list as a reader sees it; nothing if it holds."""
    truth = page_views(range(RECORDS))
    views = {p["url"]: p["page_views"] for p in pages if p["version"] >= listed["since"]}
    error, other = listed["error"], listed["other"]
    in_all = sum(views.values()) - error * len(views) + other
    holds = all(n - error <= truth[url] <= n for url, n in views.items())
    return "" if holds and in_all == truth.total() else f"{views}, {listed} ≠ {truth}"


def totals(read: range) -> list[Row]:
    """The rows that a batch changes, whole: its state is what was read before it."""
    state = counts(range(read.stop))
    pages, error = sketch(read)
    return [
        Row(
            window=window,
            window_start=start,
            window_end=start,
            visitors=b"",
            visitors_estimate=0,
            pages=[{"item": url, "count": n} for url, n in pages.items()],
            pages_error=error.to_bytes(8, "little"),
            **dict.fromkeys(traffic_job.COUNTS, 0)
            | {"requests": state[window, start], "page_views": state[window, start]},
        )
        for window, start in counts(read)
    ]


class Frame:
    """A batch's records, as far as the jobs ask for them; their code for Spark isn't run."""

    def __init__(self, offsets: Iterable[int], seen: "Seen | None" = None) -> None:
        self._offsets = list(offsets)
        self._seen = seen
        self._options: dict[str, Any] = {}

    @property
    def write(self) -> "Frame":
        return self

    def same(self, *_: Any, **__: Any) -> "Frame":
        return self

    transform = withColumns = repartitionById = same
    format = mode = partitionBy = options = same

    def observe(self, seen: "Seen", _: Any) -> "Frame":
        seen.malformed = len(MALFORMED & set(self._offsets))
        return Frame(self._offsets, seen)

    def valid(self, _: Any) -> "Frame":
        return Frame((n for n in self._offsets if n not in MALFORMED), self._seen)

    def malformed(self, _: Any) -> "Frame":
        return Frame(n for n in self._offsets if n in MALFORMED)

    def option(self, name: str, value: Any) -> "Frame":
        self._options[name] = value
        return self

    def save(self, path: str = "") -> None:
        """Appends to the archive. Dead letters may be there twice: their keys tell."""
        world = here.driver.world
        if not path:
            world.request(lambda: None, OSError("no answer"))
        elif world.delta.append(
            self._options["txnAppId"], self._options["txnVersion"], self._offsets
        ):
            self._seen.has_run = True

    def collect(self) -> list[Row]:
        return totals(range(self._offsets[0], self._offsets[-1] + 1))

    def letters(self) -> list[Row]:
        samples = [Row(f"{STREAM.topic}-0-{n}", 1, "?", MINUTES[0]) for n in self._offsets]
        samples = [Row("id", "size", "preview", "kafka_timestamp")(*sample) for sample in samples]
        row = Row(minute=MINUTES[0], reason="?", records=len(samples), samples=samples)
        return [row] if samples else []


class Seen:
    """Spark's observation. It waits for ever unless what it observes is run."""

    has_run = False

    @property
    def get(self) -> dict[str, int]:
        if not self.has_run:
            here.driver.world.is_stuck(here.driver)
        return {"malformed": self.malformed}


class Stream:
    """A job's frame: that its query is built is all that is asked of it."""

    def __init__(self, job: Any) -> None:
        self._spark = job._context.spark

    @property
    def writeStream(self) -> "Stream":
        return self

    def same(self, *_: Any, **__: Any) -> "Stream":
        return self

    queryName = outputMode = trigger = same

    def foreachBatch(self, write: Any) -> "Stream":
        self._write = write
        return self

    def option(self, _: str, path: str) -> "Stream":
        self._path = path
        return self

    def start(self) -> fakes.Query:
        driver = here.driver

        def run(batch: int, read: range) -> None:
            self._write(Frame(read), batch)

        query = fakes.Query(self._spark, self._path, STREAM.topic, driver.world.arrived, run)
        driver.queries = [*(one for one in driver.queries if one.isActive), query]
        return query


# -- The real drivers, inside


class Here(threading.local):
    """Whose thread it is."""

    driver: Driver


here = Here()


class AtOnce:
    """An executor that has done what it is given when it returns."""

    def __init__(self, *_: Any) -> None: ...

    def submit(self, work: Callable[[], Any]) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(work())
        except Exception as error:
            future.set_exception(error)
        return future


class InTurns(AtOnce):
    """One that does so, or only when it is asked what came of it: whatever else is done beside has
    been by then."""

    def __enter__(self) -> "InTurns":
        return self

    def __exit__(self, *_: object) -> None: ...

    def submit(self, work: Callable[[], Any]) -> Any:
        if here.driver.world.requests % 2:
            return super().submit(work)
        return SimpleNamespace(result=work)


def anything(*_: Any, **__: Any) -> Any:
    """Columns that Spark would make something of."""
    return Column()


class Column:
    __invert__ = __add__ = __sub__ = __mod__ = __lt__ = __call__ = __getattr__ = anything


class InLine:
    """A worker that has done what it is given when `begin` returns: on the driver's thread."""

    is_busy = False

    def __init__(self, _: str) -> None: ...

    def begin(self, work: Callable[[], None]) -> None:
        work()

    def wait(self, seconds: float) -> bool:
        return True


failed = failures.failed


def refused(attempts: Attempts, error: Exception, **times: float) -> Attempts:
    """An operator sees it at once."""
    if isinstance(error, CheckpointMismatch):
        here.driver.world.put_checkpoints_back()
    return failed(attempts, error, **times)


PLACES: list[tuple[Any, str, Any]] = [
    (coordination, "KazooClient", lambda *_, **__: here.driver.client),
    (coordination, "Lease", partial(Lease, clock=lambda: here.driver.world.now)),
    (coordination, "time", SimpleNamespace(time=lambda: 0.0)),  # the slowest of clocks
    (Lease, "_keep", lambda self: None),
    (lease, "time", SimpleNamespace(sleep=lambda _: here.driver.lease.renew())),
    (retries, "FIRST_PAUSE_SECONDS", 0.0),
    (
        supervisor,
        "time",
        SimpleNamespace(
            monotonic=lambda: here.driver.slept,
            time=lambda: 0.0,
            sleep=lambda _: here.driver.sleep(),
        ),
    ),
    (running, "time", SimpleNamespace(monotonic=lambda: here.driver.slept)),
    (supervisor, "Worker", InLine),
    (failures, "failed", refused),
    (job_states.JobStates, "tell", lambda self, reports: None),
    (wait, "rehearse", lambda *_: SimpleNamespace(end=lambda: None)),
    (heartbeat, "time", SimpleNamespace(monotonic=lambda: here.driver.slept)),
    (heartbeat, "BatchReports", fakes.BatchReports),
    (pacing, "time", SimpleNamespace(monotonic=lambda: here.driver.slept)),
    (pacing, "set_read_limit", lambda *_: True),  # the world sends batches of any size
    (turns, "time", SimpleNamespace(time=lambda: here.driver.slept)),
    (heartbeat, "CATCH_UP_SECONDS", heartbeat.FIRST_BATCH_SECONDS),  # before drivers rest
    (late_events.LateEvents, "_late", lambda *_: []),
    (results, "Producer", lambda settings: fakes.Producer(here.driver.world.kafka, settings)),
    (results, "Consumer", lambda settings: fakes.Consumer(here.driver.world.kafka, settings)),
    (results, "ThreadPoolExecutor", AtOnce),
    (concurrently, "ThreadPoolExecutor", InTurns),
    (positions, "Consumer", lambda settings: fakes.Consumer(here.driver.world.kafka, settings)),
    (cassandra, "_batch", lambda statement, rows: (statement, rows)),
    (cassandra, "connect", lambda _: SimpleNamespace(connect=lambda: here.driver.world.cassandra)),
    (archive, "F", Column()),
    (archive_job, "F", Column()),
    (archive_job, "Observation", Seen),
    (
        archive_job,
        "parse",
        SimpleNamespace(classify=None, valid=Frame.valid, malformed=Frame.malformed),
    ),
    (archive_job.Archive, "frame", lambda job: Stream(job)),
    (traffic_job.Traffic, "frame", lambda job: Stream(job)),
    (traffic_job, "LiveStream", lambda _: SimpleNamespace(announce=lambda _: None)),
    (dead_letters, "letters", Frame.same),
    (dead_letters, "summary", lambda malformed, _: SimpleNamespace(collect=malformed.letters)),
]


@contextmanager
def installed() -> Iterator[None]:
    """Drivers talk to the world of their thread."""
    with ExitStack() as stack:
        for place, name, stand_in in PLACES:
            stack.enter_context(patch.object(place, name, stand_in))
        yield


def run(history: History) -> list[Fault]:
    return World(history).run()
