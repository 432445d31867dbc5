"""A job goes on behind what kills executors, in small steps, and says what it leaves out."""

from dataclasses import dataclass, field, replace
from types import SimpleNamespace
from typing import Any

import pytest
from millrace_jobs.inputs.bounds import Bounds
from millrace_jobs.inputs.checkpoint import Batch, Offsets
from millrace_jobs.inputs.scan import ScanFailed
from millrace_jobs.inputs.skipped import Rewriting, SkippedRange
from millrace_jobs.leader import skip_requests, skipping
from millrace_jobs.leader.skip_requests import SkipRefused, carry_out, lost_range, require_ahead
from millrace_jobs.leader.skipping import (
    OffsetsExpired,
    StartAnew,
    anew,
    check_batch,
    position,
    step_aside,
)
from millrace_jobs.query.batch_size import BatchSize
from millrace_jobs.query.context import JobContext
from millrace_jobs.standby.ready import ReadyJob
from pyspark.sql import DataFrame, SparkSession

from tests.jobs.fakes import FakeJob
from tests.jobs.samples import NAMES, STREAM, settings_of

TOPIC = STREAM.topic
BURY = skipping._bury
OF_MEMORY = [
    "Task 0 in stage 3.0 failed 8 times: ExecutorLostFailure (executor 9 exited caused by one of"
    " the running tasks) Reason: Container from a bad node. Exit status: 143.",
    "java.lang.OutOfMemoryError: Java heap space",
]


@dataclass
class Log:
    """A checkpoint's log of offsets, as `Checkpoint` and `OffsetLog` have it."""

    offsets: dict[int, Offsets]
    committed: int
    location: str = "hdfs://x"

    def newest(self) -> int:
        return max(self.offsets, default=-1)

    def last_committed(self) -> int:
        return self.committed

    def ends(self, number: int) -> Offsets:
        return self.offsets[number] if number >= 0 else {}

    def batch(self, number: int) -> Batch:
        return Batch.between(self.ends(number - 1), self.ends(number))

    def query_id(self) -> str:
        return "query"

    def rewrite(self, step: Rewriting) -> None:
        self.offsets[step.number] = step.ends


@dataclass
class Skips:
    """Cassandra's table ``skipped``."""

    rows: list[Any] = field(default_factory=list)

    def upsert(self, table: str, columns: Any, rows: list[Any], version: int) -> None:
        assert table == "skipped"
        for row in rows:
            values = dict(zip(columns, row, strict=True))
            values["part"] = values.pop('"partition"')
            self.rows.append(SimpleNamespace(**values))

    def select(self, _: str, __: Any) -> list[Any]:
        return self.rows


@dataclass
class World:
    """One job over partition 0, which Kafka keeps from 0 to 100."""

    ready: ReadyJob
    log: Log
    skips: Skips
    buried: list[SkippedRange]
    too_large: list[SkippedRange]
    behind: list[SkippedRange] = field(default_factory=list)
    looked_behind: list[SkippedRange] = field(default_factory=list)

    @property
    def context(self) -> JobContext:
        return self.ready.context


def at(offset: int) -> Offsets:
    return {TOPIC: {"0": offset}}


def of(start: int, end: int) -> SkippedRange:
    return SkippedRange(TOPIC, 0, start, end)


@pytest.fixture
def world(monkeypatch: pytest.MonkeyPatch) -> World:
    log, skips = Log({6: at(10), 7: at(30)}, committed=6), Skips()
    names = SimpleNamespace(kafka=SimpleNamespace(topics=NAMES.kafka.topics))
    config: Any = SimpleNamespace(
        kafka="",
        names=names,
        settings={"traffic": settings_of("traffic")},
        streams={STREAM.name: STREAM},
    )
    lease: Any = SimpleNamespace(verify=lambda: None)
    context = JobContext("traffic", config, None, skips, log, lease, epoch=3)  # type: ignore[arg-type]
    job: Any = FakeJob()
    buried: list[SkippedRange] = []
    too_large = [of(20, 21)]
    behind: list[SkippedRange] = []
    looked_behind: list[SkippedRange] = []

    def look_behind(ranges: list[SkippedRange]) -> list[SkippedRange]:
        looked_behind.extend(ranges)
        return list(behind)

    scan = SimpleNamespace(too_large=lambda _: too_large, behind=look_behind)
    monkeypatch.setattr(skipping, "Scan", lambda *_: scan)
    monkeypatch.setattr(skipping, "_bury", lambda _, found, __: buried.extend(found))
    monkeypatch.setattr(skipping, "OffsetLog", lambda *_: log)
    for module in (skipping, skip_requests):
        monkeypatch.setattr(
            module, "bounds_of", lambda _, __, asked: dict.fromkeys(asked, Bounds(0, 100))
        )
    ready = ReadyJob(context, job, None)  # type: ignore[arg-type]
    return World(ready, log, skips, buried, too_large, behind, looked_behind)


def die(world: World, error: str = OF_MEMORY[0]) -> Any:
    """A query's start, and its end by that."""
    step_aside(world.context, world.ready.job)
    return anew(world.ready, RuntimeError(error))


def polled(world: World) -> int:
    """Records of a poll, once the query has started again."""
    step_aside(world.context, world.ready.job)
    return world.context.settings.max_poll_records


@pytest.mark.parametrize("error", OF_MEMORY)
def test_a_batch_that_dies_of_memory_is_read_record_by_record(world: World, error: str) -> None:
    usual = world.context.settings.max_poll_records
    world.context.batch_size = size = BatchSize.at_start(1, 9, 1.0)
    assert die(world, error)
    assert world.context.batch_size is None
    world.context.batch_size = size
    assert polled(world) == 1
    assert world.skips.rows == []
    check_batch(world.context, 7)
    check_batch(world.context, 8)  # what is too large may have been fetched ahead of the next
    with pytest.raises(StartAnew) as over:
        check_batch(world.context, 9)
    assert anew(world.ready, over.value)
    assert world.context.batch_size is size  # the next query goes on as fast
    world.log.committed, world.log.offsets[9] = 8, at(50)
    assert polled(world) == usual


def test_one_that_dies_again_goes_on_without_what_is_too_large(world: World) -> None:
    usual = world.context.settings.max_poll_records
    for _ in range(2):
        assert die(world)
    assert world.buried == [of(20, 21)]
    [row] = world.skips.rows
    assert (row.first_offset, row.end_offset, row.who, row.lost) == (20, 21, "the driver", False)
    assert step_aside(world.context, world.ready.job) is None
    assert world.log.offsets == {6: at(10), 7: at(20)}

    check_batch(world.context, 7)
    world.log.committed, world.log.offsets[8] = 7, at(40)
    with pytest.raises(StartAnew) as due:
        check_batch(world.context, 8)
    assert anew(world.ready, due.value)
    assert step_aside(world.context, world.ready.job) == 7
    assert polled(world) == usual  # nothing that is known is within their reach
    assert world.log.offsets == {6: at(10), 7: at(21), 8: at(40)}
    assert world.context.skips_ahead == ()


def test_its_letters_are_counted_apart_from_the_batch_s_own(
    world: World, monkeypatch: pytest.MonkeyPatch, spark: SparkSession
) -> None:
    """An archive's books take a batch's letters for records that it has read, and would have more
    than Kafka gave it."""
    sent: list[tuple[str, int, list[int]]] = []

    def write(letters: DataFrame, checkpoint: str, batch: int, _: int) -> None:
        sent.append((checkpoint, batch, [row.offset for row in letters.collect()]))

    monkeypatch.setattr(skipping, "DeadLetters", lambda *_: SimpleNamespace(write=write))
    world.context.spark = spark
    BURY(world.context, [of(20, 22)], 7)
    [(checkpoint, batch, offsets)] = sent
    assert checkpoint != world.log.query_id()
    assert checkpoint.startswith(world.log.query_id())
    assert (batch, offsets) == (7, [20, 21])


def test_what_another_job_has_found_is_left_out_before_it_kills(world: World) -> None:
    read, unread, elsewhere = of(5, 6), of(20, 21), SkippedRange("clicks", 0, 50, 51)
    found = frozenset([read, unread, elsewhere])
    why = skipping.told(world.ready, found)
    assert why
    assert why.ranges == (unread,)
    assert skipping.told(world.ready, found) is None  # once
    assert anew(world.ready, why)
    assert polled(world) == 1  # a poll of its last records would read what is behind them
    [row] = world.skips.rows
    assert (row.first_offset, row.end_offset) == (20, 21)
    assert world.buried == []  # who has found it has sent the letter
    assert step_aside(world.context, world.ready.job) is None
    assert world.log.offsets == {6: at(10), 7: at(20)}


def test_what_a_job_has_found_by_itself_it_is_not_told_of(world: World) -> None:
    for _ in range(2):
        die(world)
    assert world.context.too_large == {of(20, 21)}
    assert skipping.told(world.ready, world.context.too_large) is None


def test_what_is_first_in_a_batch_is_stepped_over_at_once(world: World) -> None:
    world.too_large[:] = [of(10, 12), of(15, 16)]
    for _ in range(2):
        die(world)
    assert step_aside(world.context, world.ready.job) == 6
    assert world.log.offsets == {6: at(12), 7: at(15)}
    assert world.context.skips_ahead == (of(15, 16),)
    assert step_aside(world.context, world.ready.job) is None


def test_behind_the_last_of_them_a_job_looks_for_more_before_it_reads_on(world: World) -> None:
    """What was sent since the first look would end two executors more."""
    for _ in range(2):
        die(world)
    step_aside(world.context, world.ready.job)
    world.log.committed, world.log.offsets[8] = 7, at(40)
    assert world.looked_behind == []
    world.behind.append(of(35, 36))
    assert step_aside(world.context, world.ready.job) == 7
    assert world.looked_behind == [of(21, 21)]
    assert world.buried == [of(20, 21), of(35, 36)]
    assert world.log.offsets == {6: at(10), 7: at(21), 8: at(35)}
    assert world.context.skips_ahead == (of(35, 36),)
    assert of(35, 36) in world.context.too_large  # other jobs are told

    world.log.committed, world.log.offsets[9] = 8, at(50)
    world.behind.clear()
    assert step_aside(world.context, world.ready.job) == 8
    assert world.looked_behind[1:] == [of(36, 36)]
    assert step_aside(world.context, world.ready.job) is None
    assert len(world.looked_behind) == 2  # a start for another reason is no occasion


def test_nobody_looks_for_more_before_the_last_of_them_is_passed(world: World) -> None:
    world.too_large.append(of(60, 61))
    for _ in range(2):
        die(world)
    step_aside(world.context, world.ready.job)
    world.log.committed, world.log.offsets[8] = 7, at(40)
    assert step_aside(world.context, world.ready.job) == 7
    assert (world.context.skips_ahead, world.looked_behind) == ((of(60, 61),), [])


def test_behind_what_an_operator_has_skipped_nobody_looks(world: World) -> None:
    world.skips.upsert("skipped", *noted(of(10, 12)))
    assert step_aside(world.context, world.ready.job) == 6
    assert world.looked_behind == []


def test_a_look_that_fails_holds_nobody_up(world: World, monkeypatch: pytest.MonkeyPatch) -> None:
    for _ in range(2):
        die(world)
    step_aside(world.context, world.ready.job)
    world.log.committed = 7

    def fail(_: Any) -> None:
        raise ScanFailed("Kafka doesn't answer")

    monkeypatch.setattr(skipping, "Scan", lambda *_: SimpleNamespace(behind=fail))
    assert step_aside(world.context, world.ready.job) == 7
    assert world.context.skips_ahead == ()


def test_only_a_batch_that_was_never_run_is_extended(world: World) -> None:
    """What a predecessor began may be published, and isn't told again."""
    world.skips.upsert("skipped", *noted(of(20, 21), of(60, 61)))
    assert step_aside(world.context, world.ready.job) is None
    assert world.log.offsets[7] == at(20)  # and not a record more, were the range behind it
    world.log.committed, world.log.offsets[8] = 7, at(22)
    with pytest.raises(StartAnew) as due:
        check_batch(world.context, 8)
    assert anew(world.ready, due.value)
    assert step_aside(world.context, world.ready.job) == 7
    assert world.log.offsets == {6: at(10), 7: at(21), 8: at(60)}

    world.context.skips_ahead = (of(60, 61),)
    world.log.offsets[8] = at(62)
    with pytest.raises(StartAnew) as over:
        check_batch(world.context, 8)  # a batch that the log had when the query started
    assert anew(world.ready, over.value)
    world.log.offsets[8] = at(40)
    assert step_aside(world.context, world.ready.job) is None
    assert world.log.offsets[8] == at(40)


def test_a_driver_that_takes_over_before_a_skip_reads_record_by_record(world: World) -> None:
    """A poll that begins before it would reach it, and end two executors once more."""
    step_aside(world.context, world.ready.job)
    assert world.context.careful_batch is None
    world.skips.upsert("skipped", *noted(of(20, 21)))
    step_aside(world.context, world.ready.job)
    assert world.context.settings.max_poll_records == 1
    usual = world.context.config.settings["traffic"].fetch_max_bytes_per_partition
    assert 16 * world.context.settings.fetch_max_bytes_per_partition < usual


def test_what_is_far_from_a_skip_is_read_by_the_usual_polls(world: World) -> None:
    """Spark asks Kafka twice for each poll: by one record each, that is slower than they come."""
    few = settings_of("traffic", max_poll_records=5)
    world.context.config.settings["traffic"] = few
    world.skips.upsert("skipped", *noted(of(60, 61)))
    assert polled(world) == 5
    check_batch(world.context, 7)
    world.log.committed, world.log.offsets[8] = 7, at(33)
    world.context.untouched = 8
    assert polled(world) == 5
    assert world.log.offsets[8] == at(55)
    check_batch(world.context, 8)
    world.log.committed, world.log.offsets[9] = 8, at(57)
    with pytest.raises(StartAnew, match="is to be read record by record"):
        check_batch(world.context, 9)
    assert polled(world) == 1
    check_batch(world.context, 9)


@pytest.mark.parametrize(
    ("at_once", "is_own", "written", "end", "poll"),
    [
        (True, True, False, 55, 5),  # the rest, record by record, is a batch of its own
        (False, True, False, 60, 1),  # some of it may be published, so it is cut and no more
        (True, False, False, 60, 1),  # a predecessor may yet write it
        (True, True, True, 70, 5),  # Delta has it, and takes nothing of it again
    ],
)
def test_only_what_has_written_nothing_ends_far_before_a_skip(
    world: World, at_once: bool, is_own: bool, written: bool, end: int, poll: int
) -> None:
    """An archive's batch has a minute's records: by one each, that took minutes."""
    world.context.config.settings["traffic"] = settings_of("traffic", max_poll_records=5)
    job: Any = FakeJob(writes_at_once=at_once, has_written=lambda _: False)
    world.ready = replace(world.ready, job=job)
    world.too_large[:] = [of(60, 61)]
    del world.log.offsets[7]
    if is_own:
        step_aside(world.context, job)
    world.log.offsets[7] = at(70)
    for _ in range(2):
        assert anew(world.ready, RuntimeError(OF_MEMORY[0]))
        job.has_written = lambda batch: written and batch == 7
        step_aside(world.context, job)
    assert world.log.offsets[7] == at(end)
    assert world.context.settings.max_poll_records == poll


def test_batches_follow_at_once_until_the_last_skip_is_passed(world: World) -> None:
    """An archive begins one in 20 s otherwise, and 50 records in a row cost it as many minutes."""
    usual = world.context.settings.trigger_seconds
    assert world.context.trigger_seconds == usual > 0
    world.skips.upsert("skipped", *noted(of(20, 21)))
    step_aside(world.context, world.ready.job)
    assert world.context.trigger_seconds == 0
    world.log.committed = 7
    step_aside(world.context, world.ready.job)
    assert world.context.trigger_seconds == usual


def test_what_is_no_record_s_fault_takes_the_usual_way(world: World) -> None:
    assert anew(world.ready, RuntimeError("no host")) is None
    world.too_large.clear()
    assert die(world)
    assert die(world) is None
    assert world.skips.rows == []


def test_what_was_left_out_already_is_no_help(world: World) -> None:
    for _ in range(2):
        die(world)
    assert die(world) is None


def test_a_scan_that_fails_leaves_nothing_out(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: Any) -> None:
        raise ScanFailed("time was up")

    monkeypatch.setattr(skipping, "Scan", lambda *_: SimpleNamespace(too_large=fail))
    die(world)
    assert die(world) is None
    assert world.skips.rows == []


def test_a_batch_that_is_written_keeps_its_offsets(world: World) -> None:
    job = FakeJob(has_written=lambda batch: batch == 7)
    world.skips.upsert("skipped", *noted(of(20, 21), of(50, 51)))
    assert step_aside(world.context, job) is None
    assert world.log.offsets == {6: at(10), 7: at(30)}
    assert world.context.skips_ahead == (of(50, 51),)
    check_batch(world.context, 7)
    assert position(world.context, job) == at(30)
    assert position(world.context, FakeJob()) == at(10)


def test_a_first_batch_ends_before_what_is_skipped_and_kept(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        skipping, "bounds_of", lambda _, __, asked: dict.fromkeys(asked, Bounds(5, 100))
    )
    world.log.offsets, world.log.committed = {0: at(30)}, -1
    world.skips.upsert("skipped", *noted(of(1, 3), of(8, 9)))
    assert step_aside(world.context, world.ready.job) is None
    assert world.log.offsets == {0: at(8)}


def test_expired_offsets_are_told_with_the_command(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        skipping, "bounds_of", lambda _, __, asked: dict.fromkeys(asked, Bounds(17, 100))
    )
    error = RuntimeError(f"Some data may have been lost because {skipping.EXPIRED}; …")
    with pytest.raises(OffsetsExpired, match=r"offsets 10 to 16.* --partition 0 --lost --why"):
        anew(world.ready, error)


def noted(*ranges: SkippedRange) -> tuple[Any, Any, int]:
    columns = ("job", "topic", '"partition"', "first_offset", "end_offset")
    return columns, [("traffic", r.topic, r.partition, r.start, r.end) for r in ranges], 1


# -- By an operator's word


def ask(world: World, **changes: Any) -> dict[str, Any]:
    answers: list[dict[str, Any]] = []
    coordination: Any = SimpleNamespace(answer=lambda *told: answers.append(told[-1]))
    question = {
        "id": "q",
        "topic": TOPIC,
        "partition": 0,
        "from": 10,
        "to": 12,
        "lost": False,
        "why": "a trial",
        "who": "ann on desk",
    }
    carry_out(world.ready, question | changes, coordination)
    [answer] = answers
    assert answer["id"] == "q"
    return answer


def test_what_an_operator_skips_is_recorded_and_stepped_over(world: World) -> None:
    assert ask(world) == {"topic": TOPIC, "partition": 0, "from": 10, "to": 12, "id": "q"}
    [row] = world.skips.rows
    assert (row.reason, row.who) == ("a trial", "ann on desk")
    assert step_aside(world.context, world.ready.job) == 6
    assert world.log.offsets == {6: at(12), 7: at(30)}


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ({"from": 9}, "up to offset 10, so 9 is in its results"),
        ({"to": 101}, "ends at 100"),
        ({"from": 12, "to": 12}, "is no range"),
        ({"topic": "clicks"}, "doesn't read topic clicks"),
        ({"lost": True}, "nothing is lost"),
    ],
)
def test_what_can_not_be_skipped_is_refused(
    world: World, changes: dict[str, Any], says: str
) -> None:
    assert says in ask(world, **changes)["error"]
    assert world.skips.rows == []


def test_a_loss_reaches_from_the_position_to_what_is_kept() -> None:
    assert lost_range(TOPIC, 0, 10, Bounds(17, 100)) == of(10, 17)
    with pytest.raises(SkipRefused):
        lost_range(TOPIC, 0, None, Bounds(17, 100))
    require_ahead(of(10, 17), 10, Bounds(0, 17))


def test_a_driver_that_has_not_run_the_job_takes_its_epoch_first(
    world: World, monkeypatch: pytest.MonkeyPatch
) -> None:
    world.context.epoch = None
    monkeypatch.setattr(skip_requests.JobRow, "read", lambda *_: SimpleNamespace(epoch=8))
    monkeypatch.setattr(skip_requests, "claim", lambda _: None)
    coordination: Any = SimpleNamespace(
        answer=lambda *_: None, take_epoch=lambda _, above: above + 1
    )
    question = {"id": "q", "topic": TOPIC, "partition": 0, "from": 10, "to": 12}
    carry_out(world.ready, question | {"lost": False, "why": "", "who": ""}, coordination)
    assert world.context.epoch == 9
