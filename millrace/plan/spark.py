"""Spark's tuned settings under a profile, typed where the planner and the toolkit read them.

The others stay beside them as they are: what only jobs read, jobs check.
"""

import re
from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping
from typing import Any, Literal, Self

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    NonNegativeFloat,
    PositiveFloat,
    PositiveInt,
    model_validator,
)

from millrace.common.paths import CONFIGS
from millrace.config import Component, Profile, absent, validate
from millrace.config.jobs import ARCHIVES, REAL_TIME, archive_job
from millrace.plan.parts import Model

FILE = CONFIGS / "components" / "spark.yaml"
MEBIBYTES = {"m": 1, "g": 1024}
# Spark refuses less: spark.sql.streaming.realTimeMode.minBatchDuration.
REAL_TIME_SECONDS = 5
# Cassandra's: MAX_TTL, and the length of a table's name, before which stands ``job_``.
MOST_DAYS = 20 * 365
TABLE = re.compile(r"[a-z0-9_]{1,44}")
# Of spark-defaults.conf: how long Delta keeps what it has replaced, and versions of a state.
REPLACED = "spark.databricks.delta.properties.defaults.deletedFileRetentionDuration"
STREAMING = "spark.sql.streaming"
DELTAS = f"{STREAMING}.stateStore.minDeltasForSnapshot"
DAYS = re.compile(r"interval ([1-9]\d*) days")
FOLDER = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*")


class Settings(BaseModel):
    model_config = ConfigDict(frozen=True, strict=True, extra="allow", validate_by_name=True)


class Defaults(Settings):
    """spark-defaults.conf. Sizes as Spark writes them: ``512m``, ``2g``."""

    driver_memory: str = Field(alias="spark.driver.memory")
    driver_overhead: str = Field(alias="spark.driver.memoryOverhead")
    executor_memory: str = Field(alias="spark.executor.memory")
    executor_overhead: str = Field(alias="spark.executor.memoryOverhead")
    executors: PositiveInt = Field(alias="spark.executor.instances")
    executor_cores: PositiveInt = Field(alias="spark.executor.cores")
    driver_port: PositiveInt = Field(alias="spark.driver.port")
    blocks_port: PositiveInt = Field(alias="spark.blockManager.port")
    port_retries: PositiveInt = Field(alias="spark.port.maxRetries")
    attempts: PositiveInt = Field(alias="spark.yarn.maxAppAttempts")

    @model_validator(mode="after")
    def _ages_can_be_read(self) -> Self:
        if not DAYS.fullmatch(said := str(self._extra(REPLACED))):
            raise ValueError(f"{REPLACED}: '{said}' is no age such as 'interval 7 days'")
        return self

    @property
    def replaced_days(self) -> int:
        """For how long files stay that a table doesn't refer to any more."""
        found = DAYS.fullmatch(self._extra(REPLACED))
        assert found  # validated above
        return int(found[1])

    @property
    def state_versions(self) -> int:
        """How many snapshots of a state store a checkpoint has at most, with the one being made."""
        batches, between = self._extra(f"{STREAMING}.minBatchesToRetain"), self._extra(DELTAS)
        return -(-batches // between) + 1

    def _extra(self, name: str) -> Any:
        """What has no field here: a field would change its line's place in spark-defaults.conf."""
        return (self.model_extra or {}).get(name)

    @property
    def places(self) -> int:
        """Tasks of one application that run at once."""
        return self.executors * self.executor_cores

    @property
    def container_mebibytes(self) -> tuple[int, int]:
        """Returns what the containers of a driver and of an executor ask YARN for, each."""
        driver = _mebibytes(self.driver_memory) + _mebibytes(self.driver_overhead)
        executor = _mebibytes(self.executor_memory) + _mebibytes(self.executor_overhead)
        return driver, executor

    @property
    def application_mebibytes(self) -> int:
        """Returns what the containers of one application ask YARN for: its driver and its
        executors."""
        driver, executor = self.container_mebibytes
        return driver + self.executors * executor


class Common(Settings):
    """Of all jobs. ``checkpoints`` and ``archives`` are folders of HDFS."""

    checkpoints: str = Field(pattern=r"^/")
    archives: str = Field(pattern=r"^/")
    web_port: PositiveInt
    stream: str
    max_events_per_second: PositiveInt
    cold_seconds: PositiveInt
    dead_letter_samples: PositiveInt
    kafka_connect_ms: PositiveInt
    kafka_answer_ms: PositiveInt
    kafka_reconnect_ms: PositiveInt


class Job(Settings):
    """What each job has: a batch every ``trigger_seconds``; records may wait ``lag_seconds``.

    ``streams`` or ``stream`` say what it reads, where that isn't what all read;
    ``max_events_per_second`` how much, likewise. Programs have no ``trigger`` to choose, and no
    ``max_rows`` of a batch.
    """

    checkpoint: str
    trigger: Literal["micro-batch", "real-time"] | None = Field(default=None, exclude_if=absent)
    trigger_seconds: PositiveFloat
    lag_seconds: PositiveInt
    stream: str | None = Field(default=None, exclude_if=absent)
    streams: list[str] | None = Field(default=None, exclude_if=absent)
    max_events_per_second: PositiveInt | None = Field(default=None, exclude_if=absent)
    max_rows: PositiveInt | None = Field(default=None, exclude_if=absent)
    keep_days: PositiveInt | None = Field(default=None, exclude_if=absent)
    rows_per_event: NonNegativeFloat | None = Field(default=None, exclude_if=absent)
    max_keys: PositiveInt | None = Field(default=None, exclude_if=absent)


class Archive(Job):
    keep_days: PositiveInt


class Traffic(Job):
    watermark_seconds: PositiveInt
    page_characters: PositiveInt
    pages_tracked: PositiveInt
    keep_days: PositiveInt
    pages_keep_days: PositiveInt
    page_view_methods: list[str]
    page_view_statuses: list[int]
    page_view_asset_extensions: list[str]


class SparkSettings(Settings):
    """Beside these, a group for each of the other jobs."""

    __pydantic_extra__: dict[str, Job]

    defaults: Defaults = Field(alias="spark-defaults.conf")
    common: Common
    archive: Archive
    traffic: Traffic

    def job(self, name: str) -> Job:
        job = getattr(self, name)
        assert isinstance(job, Job)
        return job

    def is_real_time(self, name: str) -> bool:
        job = self.__pydantic_extra__.get(name)  # programs don't
        return job is not None and job.trigger == REAL_TIME

    def keeps_rows(self, name: str) -> bool:
        """Returns whether it is a job of one file with a table of its rows: no program of ours,
        and none in real time."""
        declared = name in self.__pydantic_extra__ and not name.startswith(ARCHIVES)
        return declared and not self.is_real_time(name)

    def streams_of(self, name: str) -> list[str]:
        """Returns the streams that a job reads."""
        job = self.job(name)
        return job.streams or [job.stream or self.common.stream]

    def events_per_second(self, name: str) -> int:
        """The most that a job takes of a stream, whatever the machines."""
        return self.job(name).max_events_per_second or self.common.max_events_per_second

    def batch_records(self, name: str) -> int:
        """The most that a batch of a job has of a stream; a second's at least."""
        job = self.job(name)
        most = int(self.events_per_second(name) * max(job.trigger_seconds, 1))
        return min(most, job.max_rows) if self.keeps_rows(name) and job.max_rows else most

    def archive_job(self, stream: str) -> str:
        """Returns the job that archives a stream."""
        return archive_job(stream, self.common.stream)


class SparkPlan(Model):
    distribution: str | None
    jvm: list[str]
    settings: SparkSettings

    def rendered(self) -> dict[str, Any]:
        """Returns everything by the names that configs/components/spark.yaml has."""
        return self.model_dump(mode="json", by_alias=True)


def settings_of(spark: Component, profile: Profile) -> SparkSettings:
    """Raises OperatorError for a value of another type than its reader expects."""
    content = {
        group: {key: setting.at(profile) for key, setting in settings.items()}
        for group, settings in spark.settings.items()
    }
    return validate(SparkSettings, content, FILE)


def rate_problems(
    settings: SparkSettings, jobs: Iterable[str], promised: float, headroom: float
) -> Iterator[str]:
    """Jobs whose batches are bounded below what an environment promises, or can't catch up."""
    for job in (job for job in jobs if not settings.is_real_time(job)):
        if (most := settings.events_per_second(job)) < promised * headroom:
            yield (
                f"load.events_per_second: {promised:,} with a headroom of {headroom:g}"
                f" (configs/capacity.yaml) is more than the job {job} takes: {most:,}"
                " (max_events_per_second in configs/components/spark.yaml)"
            )


def store_problems(settings: SparkSettings, jobs: Iterable[str]) -> Iterator[str]:
    """Jobs whose names and ages neither HDFS nor Cassandra could take, or that would share a
    checkpoint."""
    sharing: dict[str, list[str]] = defaultdict(list)
    for name in jobs:
        job = settings.job(name)
        sharing[job.checkpoint].append(name)
        where = f"job {name}: checkpoint {job.checkpoint!r}"
        if settings.keeps_rows(name) and not TABLE.fullmatch(job.checkpoint):
            yield (
                f"{where} names its table, too: at most 44 of a-z, 0-9 and _, such as {name[:42]}_2"
            )
        elif not FOLDER.fullmatch(job.checkpoint):
            yield f"{where} is no name of a folder, such as {name}"
        ages = {"keep_days": job.keep_days, "pages_keep_days": getattr(job, "pages_keep_days", 0)}
        for setting, days in ages.items():
            if (days or 0) > MOST_DAYS:
                yield (
                    f"job {name}: {setting} {days:,}: Cassandra keeps a row for 20 years at most,"
                    f" {MOST_DAYS:,} days"
                )
    for checkpoint, names in sharing.items():
        if len(names) > 1:
            yield (
                f"jobs {', '.join(names)}: each has the checkpoint {checkpoint}; give all but one"
                " of them another, as a checkpoint is of one job"
            )


def real_time_problems(
    settings: SparkSettings,
    applications: Mapping[str, Collection[str]],
    partitions: Mapping[str, int],
) -> Iterator[str]:
    """Jobs in real time that have no place to run, or can't tell in time how far they are.

    Args:
        partitions: of each stream's topic.
    """
    for application, jobs in applications.items():
        for job in filter(settings.is_real_time, jobs):
            if len(jobs) > 1:
                yield (
                    f"applications.{application}: {job} runs in real time, and its tasks hold their"
                    f" places for good; give it an application of its own, such as {job}: [{job}]"
                )
            [stream] = settings.streams_of(job)
            yield from _place_problems(settings.defaults, application, job, partitions[stream])
            yield from _note_problems(settings.job(job), job)


def _place_problems(
    defaults: Defaults, application: str, job: str, partitions: int
) -> Iterator[str]:
    """Spark has a task for each partition of the topic, whatever options say."""
    if defaults.places < partitions:
        yield (
            f"applications.{application}: {job} needs a place for each of its topic's {partitions}"
            f" partitions, and {defaults.executors} executors of {defaults.executor_cores} cores"
            f" have {defaults.places}; raise spark.executor.instances or spark.executor.cores in"
            " configs/components/spark.yaml"
        )


def _note_problems(job: Job, name: str) -> Iterator[str]:
    if job.trigger_seconds < REAL_TIME_SECONDS:
        yield (
            f"job {name}: trigger_seconds {job.trigger_seconds:g}: in real time it is how often is"
            f" noted how far the job has read, {REAL_TIME_SECONDS} at least; say 30 in its settings"
        )
    if job.lag_seconds <= job.trigger_seconds:
        yield (
            f"job {name}: lag_seconds {job.lag_seconds}: it would seem to fall behind between two"
            " notes of how far it has read; make it more than trigger_seconds,"
            f" {job.trigger_seconds:g}"
        )


def _mebibytes(size: str) -> int:
    return int(size[:-1]) * MEBIBYTES[size[-1]]
