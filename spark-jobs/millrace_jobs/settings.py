"""A job's settings as the framework reads them: the name of each, its type, and its unit.

To add one, write it with its reason into ``configs/``: for all jobs into components/spark.yaml
under ``common``, for a program there under its name, for jobs of one file into jobs/defaults.yaml.
Then add one line here, to the class of the jobs that have it. A driver doesn't start, and a version
isn't deployed, where a setting is missing or of another type; the refusal names it. One that has a
default here may be missing.

A setting's unit is the end of its name. Free of Spark and of libraries, because a driver imports it
on its way to leading, and the gateway compares contracts on edge hosts.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from millrace_shared import strict

S = TypeVar("S", bound="JobSettings")

MICRO_BATCH = "micro-batch"  # the trigger of a job that doesn't say another


@dataclass(frozen=True)
class ApplicationSettings:
    """What the drivers of an application share. Folders are of HDFS."""

    lease_seconds: float
    catch_up_seconds: float
    web_port: int
    checkpoints: str
    archives: str


@dataclass(frozen=True, kw_only=True)
class KafkaClientSettings:
    """How long clients of Kafka wait for a broker, whatever they ask of it."""

    kafka_connect_ms: int
    kafka_answer_ms: int
    kafka_reconnect_ms: int


@dataclass(frozen=True, kw_only=True)
class JobSettings(KafkaClientSettings):
    """What every job has.

    Attributes:
        checkpoint: the name of its folder.
        stream: what it reads, unless ``streams`` are several.
        tasks: that read Kafka in a batch.
        least_events_per_second, max_events_per_second: what it takes of each stream: after a start,
            and at most.
        batch_target_seconds: how long a batch should take at most.
        longest_batch_seconds: after which a batch is cancelled.
        share: of the executors' places, where several jobs want them.
        given: everything as ``configs/`` has it, a job's free settings included: what the function
            of a job of one file gets.
    """

    checkpoint: str
    trigger: str = MICRO_BATCH
    trigger_seconds: float
    longest_batch_seconds: float
    rehearsal_pause_seconds: float
    stream: str
    streams: list[str] | None = None
    tasks: int
    shuffle_partitions: int
    least_events_per_second: int
    max_events_per_second: int
    batch_target_seconds: float
    share: int
    max_poll_records: int
    fetch_max_bytes: int
    fetch_max_bytes_per_partition: int
    kafka_read_answer_ms: int
    kafka_read_give_up_ms: int
    dead_letter_samples: int
    dead_letter_request_bytes: int
    given: dict[str, Any]

    @classmethod
    def read(cls: type[S], given: Mapping[str, Any]) -> S:
        """The settings in a deployment's JSON. Raises `strict.Misconfigured`, which names one."""
        return strict.read_known(cls, {**given, "given": dict(given)})

    @property
    def stream_names(self) -> list[str]:
        """What the job reads, in the order of its function's arguments."""
        return self.streams or [self.stream]

    def as_kind(self, kind: type[S]) -> S:
        """The same, known to be those of a kind. Raises TypeError for a job of another one."""
        if not isinstance(self, kind):
            raise TypeError(f"{type(self).__name__} are no {kind.__name__}")
        return self


@dataclass(frozen=True, kw_only=True)
class ArchiveSettings(JobSettings):
    """``writers_per_hour``: so many files of each hour that a batch has events of; what was older
    than ``old_after_hours`` when it came has no hour."""

    writers_per_hour: int
    old_after_hours: int
    keep_days: int


@dataclass(frozen=True, kw_only=True)
class WindowedSettings(JobSettings):
    """Of jobs that count by window. One takes events that are older by ``watermark_seconds``."""

    watermark_seconds: int


@dataclass(frozen=True, kw_only=True)
class TrafficSettings(WindowedSettings):
    """``hll_lg_k``: a sketch of visitors has 2 to so many registers."""

    hll_lg_k: int
    pages_tracked: int
    page_characters: int
    page_view_kind: str
    page_view_methods: list[str]
    page_view_statuses: list[int]
    page_view_asset_extensions: list[str]


@dataclass(frozen=True, kw_only=True)
class DeclaredSettings(WindowedSettings):
    """Of a job of one file that runs in batches; configs/jobs/defaults.yaml explains each.

    Attributes:
        state_store: the class of Spark's that holds the job's state.
        max_keys: rows of state, and ``max_rows`` that a batch changes, beyond which it fails.
        buckets: partitions that a day's rows are dealt to.
        quarantine_share: of a batch's events that may be put aside; or so many
            ``quarantine_records``, with those of the batches before.
        tables: lookup tables whose facts its rows get.
        approximate_error: the relative standard error of ``approximate_columns``.
        session_gap_seconds: that ends a session; 0 for rows that are no slots of sessions.
        session_pages: the column that counts a session's pages.
    """

    state_store: str
    max_keys: int
    max_rows: int
    buckets: int
    keep_days: int
    quarantine_share: float
    quarantine_records: int
    tables: list[str]
    approximate_columns: list[str]
    approximate_error: float
    session_gap_seconds: int
    session_pages: str


@dataclass(frozen=True, kw_only=True)
class RealTimeSettings(JobSettings):
    """Of a job of one file that looks at each event by itself: no more than every job has."""
