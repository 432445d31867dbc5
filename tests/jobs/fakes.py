"""What a driver talks to, in memory: ZooKeeper, Kafka, Cassandra, Delta, HDFS, Spark's queries.

Each request that can go wrong is handed to ``request``, with the error of one that got no answer.
"""

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial
from types import SimpleNamespace
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicPartition
from kazoo.exceptions import (
    BadVersionError,
    LockTimeout,
    NodeExistsError,
    NoNodeError,
    RolledBackError,
    RuntimeInconsistency,
)
from kazoo.handlers.threading import KazooTimeoutError
from millrace_jobs.query.context import JobContext
from millrace_jobs.query.job import MicroBatches
from millrace_jobs.settings import JobSettings
from py4j.protocol import Py4JJavaError

from tests.jobs.samples import STREAM, settings_of

Request = Callable[[Callable[[], Any], Exception], Any]


# -- ZooKeeper


@dataclass
class Node:
    value: bytes = b""
    version: int = 0
    session: object = None  # that it ends with


class ZooKeeper:
    def __init__(self, request: Request) -> None:
        self.request = request
        self.nodes: dict[str, Node] = {}
        self.places = 0  # in line that were taken

    def end(self, session: object) -> None:
        self.nodes = {path: n for path, n in self.nodes.items() if n.session is not session}

    def leads(self, session: object) -> bool:
        return any(n.session is session for path, n in self.nodes.items() if "/lock-" in path)

    def children(self, path: str) -> list[str]:
        return [node for node in self.nodes if node.startswith(f"{path}/")]


class Kazoo:
    """One driver's client. A session that has ended is followed by another, without its nodes.

    ``wait`` returns once what it is given is true.
    """

    connected = True

    def __init__(self, zookeeper: ZooKeeper, wait: Callable[[Callable[[], bool]], None]) -> None:
        self._zookeeper = zookeeper
        self._wait = wait

    def start(self, _: float) -> None: ...

    def retry(self, function: Callable[..., Any], *arguments: Any) -> Any:
        return function(*arguments)

    def ensure_path(self, path: str) -> None:
        self._zookeeper.nodes.setdefault(path, Node())

    def create(self, path: str, value: bytes, ephemeral: bool) -> None:
        if path in self._zookeeper.nodes:
            raise NodeExistsError
        self._zookeeper.nodes[path] = Node(value, session=self if ephemeral else None)

    def get(self, path: str) -> tuple[bytes, Node]:
        if path not in self._zookeeper.nodes:
            raise NoNodeError
        node = self._zookeeper.nodes[path]
        return node.value, node

    def set(self, path: str, value: bytes, version: int = -1) -> None:
        node = self._zookeeper.nodes[path]
        if version not in (-1, node.version):
            raise BadVersionError
        self._zookeeper.nodes[path] = Node(value, node.version + 1, node.session)

    def delete(self, path: str) -> None:
        if self._zookeeper.nodes.pop(path, None) is None:
            raise NoNodeError

    def exists(self, path: str) -> Node | None:
        return self._zookeeper.nodes.get(path)

    def exists_async(self, path: str) -> Any:
        return SimpleNamespace(get=lambda timeout: self.exists(path))

    def transaction(self) -> "Transaction":
        return Transaction(self, self._zookeeper.request)

    def Lock(self, path: str, _: str) -> "Lock":
        return Lock(self, self._zookeeper, path, self._wait)


class Transaction:
    """A check of the lock's node, then perhaps one write: all of it or nothing."""

    def __init__(self, client: Kazoo, request: Request) -> None:
        self._client, self._request = client, request
        self._data: list[tuple[str, bytes, int]] = []

    def check(self, path: str, _: int) -> None:
        self._lock = path

    def set_data(self, *data: Any) -> None:
        self._data.append(data)

    def commit_async(self) -> Any:
        return SimpleNamespace(get=lambda timeout: self._request(self._commit, KazooTimeoutError()))

    def _commit(self) -> list[Any]:
        if not self._client.exists(self._lock):
            return [NoNodeError(), *(RuntimeInconsistency() for _ in self._data)]
        try:
            return [True, *(self._client.set(*data) for data in self._data)]
        except BadVersionError as error:
            return [RolledBackError(), error]


class Lock:
    def __init__(self, client: Kazoo, zookeeper: ZooKeeper, path: str, wait: Any) -> None:
        self._client, self._zookeeper, self._wait = client, zookeeper, wait
        self.path, self.node = path, ""

    def acquire(self, timeout: float | None) -> bool:
        if not self._client.exists(f"{self.path}/{self.node}"):
            self._zookeeper.places += 1
            self.node = f"lock-{self._zookeeper.places}"
            self._client.create(f"{self.path}/{self.node}", b"", ephemeral=True)
        if not self._is_first() and timeout is not None:
            raise LockTimeout
        self._wait(self._is_first)
        return True

    def release(self) -> None:
        self._zookeeper.nodes.pop(f"{self.path}/{self.node}", None)

    def _is_first(self) -> bool:
        return self._zookeeper.children(self.path)[:1] == [f"{self.path}/{self.node}"]


# -- Kafka


class Kafka:
    """Transactions by their producers' id, a group's positions, and what readers see."""

    def __init__(self, request: Request, see: Callable[[dict[str, Any]], None]) -> None:
        self.request, self._see = request, see
        self.epochs: Counter[str] = Counter()
        self.open: dict[str, tuple[list[Any], list[TopicPartition]]] = {}
        self.positions: dict[tuple[str, str, int], TopicPartition] = {}

    def join(self, transactional_id: str) -> int:
        self.open.pop(transactional_id, None)
        self.epochs[transactional_id] += 1
        return self.epochs[transactional_id]

    def expire(self) -> None:
        for transactional_id in list(self.open):
            self.join(transactional_id)

    def commit(self, transactional_id: str) -> None:
        records, positions = self.open.pop(transactional_id, ([], []))
        for group, position in positions:
            self.positions[group, position.topic, position.partition] = position
        for record in records:
            self._see(record)


class Producer:
    def __init__(self, kafka: Kafka, settings: dict[str, Any]) -> None:
        self._kafka = kafka
        self._id = settings["transactional.id"]
        self._epoch: int | None = None

    def init_transactions(self, _: float) -> None:
        if self._epoch is not None:  # librdkafka's: "not valid in state Ready"
            raise KafkaException(KafkaError(KafkaError._STATE))
        self._epoch = self._kafka.request(partial(self._kafka.join, self._id), _no_answer())

    def begin_transaction(self) -> None:
        self._records: list[Any] = []

    def produce(self, topic: str, value: str, key: str) -> None:
        self._records.append(json.loads(value))

    def send_offsets_to_transaction(self, positions: list[Any], group: str, _: float) -> None:
        def send() -> None:
            self._check()
            of_group = [(group, position) for position in positions]
            self._kafka.open[self._id] = self._records, of_group

        self._kafka.request(send, _no_answer(txn_requires_abort=True))

    def commit_transaction(self, _: float) -> None:
        def commit() -> None:
            self._check()
            self._kafka.commit(self._id)

        self._kafka.request(commit, _no_answer(retriable=True))

    def abort_transaction(self, _: float) -> None:
        def abort() -> None:
            self._check()
            self._kafka.open.pop(self._id, None)

        self._kafka.request(abort, _no_answer(retriable=True))

    def _check(self) -> None:
        if self._kafka.epochs[self._id] != self._epoch:
            raise KafkaException(KafkaError(KafkaError._FENCED, "fenced", fatal=True))


class Consumer:
    def __init__(self, kafka: Kafka, settings: dict[str, Any]) -> None:
        self._kafka, self._group = kafka, settings["group.id"]

    def consumer_group_metadata(self) -> str:
        return self._group

    def committed(self, partitions: list[TopicPartition], _: float) -> list[TopicPartition]:
        def read() -> list[TopicPartition]:
            known = self._kafka.positions
            return [known.get((self._group, p.topic, p.partition), p) for p in partitions]

        return self._kafka.request(read, _no_answer())

    def commit(self, offsets: Any, asynchronous: bool) -> None: ...


def _no_answer(**kind: bool) -> KafkaException:
    return KafkaException(KafkaError(KafkaError._TIMED_OUT, "no answer", **kind))


# -- Cassandra

KEY_COLUMNS = {
    "traffic": 3,
    "pages": 2,
    "page_lists": 1,
    "dead_letter_batches": 2,
    "dead_letter_counts": 5,
    "dead_letters": 2,
    "job_progress": 1,
    "job_work": 1,
    "late_events": 5,
    "late_uncounted": 3,
}


class Cassandra:
    """Cell by cell the write with the highest timestamp wins. ``see`` is told each row's change."""

    def __init__(self, request: Request, see: Callable[[str, Any, Any], None]) -> None:
        self._request, self._see = request, see
        self._cells: dict[str, Any] = defaultdict(lambda: defaultdict(dict))
        self.cluster = SimpleNamespace(shutdown=lambda: None)

    def rows(self, table: str) -> dict[tuple[Any, ...], dict[str, Any]]:
        return {key: _values(cells) for key, cells in self._cells[table].items()}

    def prepare(self, query: str) -> Any:
        words = query.replace("(", "").replace(")", "").replace(",", "").split()
        if words[0] == "INSERT":  # INTO keyspace.table column … VALUES …
            columns = words[3 : words.index("VALUES")]
            return SimpleNamespace(table=words[2].partition(".")[2], columns=columns)
        return SimpleNamespace(table=words[words.index("FROM") + 1].partition(".")[2])

    def execute(self, statement: Any, key: Any) -> Any:
        rows = self._request(lambda: self.rows(statement.table), TimeoutError("no quorum"))
        row = rows.get(tuple(key))
        names = defaultdict(lambda: None, {n.strip('"'): v for n, v in (row or {}).items()})
        return Answer([Found(names)] if row else [])

    def execute_async(self, batch: tuple[Any, list[tuple[Any, ...]]]) -> Any:
        try:
            self._request(lambda: self._write(*batch), TimeoutError("no quorum"))
        except TimeoutError as error:
            return SimpleNamespace(result=partial(_fail, error))
        return SimpleNamespace(result=lambda: None)

    def _write(self, statement: Any, rows: Iterable[tuple[Any, ...]]) -> None:
        for *values, timestamp in rows:
            key = tuple(values[: KEY_COLUMNS[statement.table]])
            cells = self._cells[statement.table][key]
            before = _values(cells)
            for column, value in zip(statement.columns, values, strict=True):
                if timestamp >= cells.get(column, (-1,))[0]:
                    cells[column] = (timestamp, value)
            self._see(statement.table, before, _values(cells))


class Answer(list[Any]):
    """Rows, as Cassandra's driver gives them."""

    def one(self) -> Any:
        return self[0] if self else None


class Found:
    """A row; what was never written is null."""

    def __init__(self, values: dict[str, Any]) -> None:
        self._found = values

    def __getattr__(self, name: str) -> Any:
        return self._found[name]


def _values(cells: dict[str, tuple[int, Any]]) -> dict[str, Any]:
    return {column: value for column, (_, value) in cells.items()}


def _fail(error: Exception) -> None:
    raise error


# -- Delta


class Delta:
    """One table. Its log keeps the last version that each application has added."""

    def __init__(self, request: Request, see: Callable[[list[int]], None]) -> None:
        self._request, self._see = request, see
        self._versions: dict[str, int] = {}

    def append(self, application: str, version: int, records: list[int]) -> bool:
        """False if that version is there already; then nothing is computed."""
        seen = self._request(lambda: self._versions.get(application, -1), OSError("no answer"))
        if version <= seen:
            return False

        def commit() -> None:
            if self._versions.get(application, -1) != seen:
                raise Conflict
            self._versions[application] = version
            self._see(records)

        self._request(commit, OSError("no answer"))
        return True


class Conflict(Py4JJavaError):
    """Another writer of the same application has committed meanwhile."""

    def __init__(self) -> None:
        name = "io.delta.exceptions.ConcurrentTransactionException"
        self.java_exception = SimpleNamespace(
            getClass=lambda: SimpleNamespace(getName=lambda: name)
        )

    def __str__(self) -> str:
        return "conflict"


# -- HDFS and Spark


class Hdfs:
    """Files by path. Spark's logs are created, never overwritten."""

    def __init__(self, request: Request) -> None:
        self.request = request
        self.files: dict[str, str] = {}
        self.queries = 0  # that ever were

    def create(self, path: str, text: str) -> None:
        def effect() -> None:
            if path in self.files:
                raise RuntimeError(f"concurrent update of a query's log: {path}")
            self.files[path] = text

        self.request(effect, OSError(path))

    def read(self, path: str) -> str:
        return self.request(lambda: self.files[path], OSError(path))

    def numbers(self, folder: str) -> list[int]:
        """The names of a log's files."""
        found = [path.removeprefix(f"{folder}/") for path in self.files]
        return sorted(int(name) for name in found if name.isdecimal())


class Path:
    """Hadoop's, and its file system, as far as `Checkpoint` asks them."""

    def __init__(self, hdfs: Hdfs, path: "str | Path", child: str = "") -> None:
        self._hdfs = hdfs
        self.path = f"{path}/{child}" if child else str(path)

    def __str__(self) -> str:
        return self.path

    def getFileSystem(self, _: Any) -> "Path":
        return self

    def getName(self) -> str:
        return self.path.rpartition("/")[2]

    def exists(self, path: "Path") -> bool:
        files = self._hdfs.files
        return any(file == path.path or file.startswith(f"{path}/") for file in files)

    def listStatus(self, folder: "Path") -> list[Any]:
        found = self._hdfs.request(lambda: self._hdfs.numbers(folder.path), OSError(folder.path))
        return [SimpleNamespace(getPath=partial(Path, self._hdfs, folder, str(n))) for n in found]

    def open(self, path: "Path") -> Any:
        return SimpleNamespace(text=self._hdfs.read(path.path), close=lambda: None)


class Spark:
    """A session, and the JVM's part of reading a checkpoint."""

    def __init__(self, hdfs: Hdfs) -> None:
        self.hdfs = hdfs
        self.running = ""  # the query's id
        self.conf = SimpleNamespace(set=lambda *_: None)
        hadoop = SimpleNamespace(fs=SimpleNamespace(Path=partial(Path, hdfs)))
        io = SimpleNamespace(IOUtils=SimpleNamespace(toString=lambda stream, _: stream.text))
        apache = SimpleNamespace(hadoop=hadoop, commons=SimpleNamespace(io=io))
        self.sparkContext = SimpleNamespace(
            _jvm=SimpleNamespace(org=SimpleNamespace(apache=apache)),
            _jsc=SimpleNamespace(hadoopConfiguration=lambda: None),
            setLocalProperty=lambda *_: None,
            getLocalProperty=lambda _: self.running,
        )

    def newSession(self) -> "Spark":
        return Spark(self.hdfs)


class Query:
    """Spark's execution of micro-batches: plan, run, commit, each in a log of the checkpoint.

    Args:
        arrived: up to which offset there are records, each time that it is asked.
        run: what makes of a batch's number and its offsets a frame, and writes it.
    """

    def __init__(
        self,
        spark: Spark,
        path: str,
        topic: str,
        arrived: Callable[[int], int],
        run: Callable[[int, range], None],
    ) -> None:
        self._spark, self._hdfs, self._path, self._topic = spark, spark.hdfs, path, topic
        self._arrived, self._run = arrived, run
        if f"{path}/metadata" not in self._hdfs.files:
            self._hdfs.queries += 1
            self._hdfs.create(f"{path}/metadata", json.dumps({"id": f"{self._hdfs.queries}"}))
        self.id = json.loads(self._hdfs.files[f"{path}/metadata"])["id"]
        self.batch = -1  # the one that is due
        self.start = 0
        self.end: int | None = None  # of a batch that was planned before
        self.rests = 0  # how often there was nothing to do, in a row
        self.isActive = True
        self.status = {"isTriggerActive": False}
        self.lastProgress: Any = None
        self.recentProgress: list[Any] = []
        self._error: Exception | None = None

    def exception(self) -> Exception | None:
        return self._error

    def stop(self) -> None:
        self.isActive = False

    def trigger(self) -> None:
        """One batch, if there are records."""
        if self.isActive:
            self._spark.running = self.id
            try:
                self._trigger()
            except Exception as error:
                self._error, self.isActive = error, False

    def _trigger(self) -> None:
        if self.batch < 0:
            self._recover()
        if self.end is None:
            end = self._arrived(self.start)
            if end == self.start:
                self.rests += 1
                self.lastProgress = SimpleNamespace(batchId=self.batch, numInputRows=0)
                return
            offsets = json.dumps({self._topic: {"0": end}})
            self._hdfs.create(
                f"{self._path}/offsets/{self.batch}", f'v1\n{{"batchWatermarkMs": 0}}\n{offsets}'
            )
            self.end = end
        self._run(self.batch, range(self.start, self.end))
        self._hdfs.create(f"{self._path}/commits/{self.batch}", "")
        self.lastProgress = SimpleNamespace(
            batchId=self.batch,
            numInputRows=self.end - self.start,
            timestamp=f"{self.batch}",
            eventTime={},
            stateOperators=[],
            inputRowsPerSecond=1.0,
            durationMs={"addBatch": 1, "triggerExecution": 1},
            sources=[],
        )
        self.recentProgress.append(self.lastProgress)
        self.batch, self.start, self.end, self.rests = self.batch + 1, self.end, None, 0

    def _recover(self) -> None:
        """The batch after the last one, or the last one again if it wasn't committed."""
        begun = self._hdfs.numbers(f"{self._path}/offsets")
        committed = self._hdfs.numbers(f"{self._path}/commits")
        self.batch = len(committed)
        self.start = self._end_of(self.batch - 1) if committed else 0
        self.end = self._end_of(self.batch) if len(begun) > len(committed) else None

    def _end_of(self, batch: int) -> int:
        offsets = self._hdfs.read(f"{self._path}/offsets/{batch}").splitlines()[2]
        return json.loads(offsets)[self._topic]["0"]


class BatchReports:
    """Of a `Query`, each once."""

    def __init__(self, query: Query) -> None:
        self._query = query
        self._read = 0

    @property
    def has_any(self) -> bool:
        return self._query.lastProgress is not None

    def news(self) -> list[Any]:
        first, self._read = self._read, len(self._query.recentProgress)
        return self._query.recentProgress[first:]


# -- Simple ones


class FakeJob(MicroBatches):
    """A job that does nothing; what else it is to say or do is given by name."""

    output_mode = "update"
    late_events: Any = None

    def __init__(self, **facts: Any) -> None:
        vars(self).update(facts)

    def frame(self, max_offsets: int | None = None) -> Any: ...

    def rehearse(self, frame: Any, batch: int, scratch: str) -> None: ...

    def on_lead(self) -> None: ...


def context_of(
    job: str = "traffic", settings: JobSettings | None = None, **parts: Any
) -> JobContext:
    """A job's context as a driver makes it, of ``settings`` or traffic's, with the ``parts`` that
    the test needs. It is a real one, so whatever a driver's code asks of it is there."""
    settings = settings or settings_of("traffic")
    config = SimpleNamespace(
        settings={job: settings}, streams=dict.fromkeys(settings.stream_names, STREAM)
    )
    needed = {"config": config, "spark": FakeSpark(), "tables": FakeTables()}
    empty = SimpleNamespace(location="", newest=lambda: -1, last_committed=lambda: -1)
    needed |= {"checkpoint": empty, "lease": None}
    return JobContext(job, **(needed | parts))


class FakeSpark:
    """A session in which nothing runs."""

    def __init__(self) -> None:
        backend = SimpleNamespace(cancelJobGroupAndFutureJobs=lambda _: None)
        self.sparkContext = SimpleNamespace(
            setLocalProperty=lambda *_: None, _jsc=SimpleNamespace(sc=lambda: backend)
        )


class FakeTables:
    """What was written, and when; each row read is ``row``."""

    def __init__(self, row: Any = None) -> None:
        self.row = row
        self.rows: list[dict[str, Any]] = []
        self.work: dict[str, Any] = {}
        self.timestamps: list[int] = []
        self.written: Counter[str] = Counter()

    def select_one(self, *_: Any) -> Any:
        return self.row

    def select(self, *_: Any) -> list[Any]:
        return []

    def upsert(self, table: str, columns: Any, rows: Any, timestamp: int) -> None:
        self.written[table] += 1
        if table == "job_work":
            self.work = dict(zip(columns, rows[0], strict=True))
            return
        self.rows += [dict(zip(columns, row, strict=True)) for row in rows]
        self.timestamps.append(timestamp)


def workers(told: list[Any]) -> Any:
    """Executors that are there at once, and say that they were waited for."""
    return SimpleNamespace(
        number=2,
        addresses=frozenset,
        complete=lambda: None,
        wait=lambda over: told.append("all executors"),
    )
