"""Kafka as a source: how its clients leave a broker that doesn't answer."""

from types import SimpleNamespace
from typing import Any

import pytest
from millrace_jobs.inputs import sources
from millrace_jobs.inputs.checkpoint import Batch
from millrace_jobs.inputs.skipped import SkippedRange
from millrace_jobs.inputs.sources import asking_anew, turning_away

from millrace.config import PROFILES, load_component
from tests.jobs.samples import settings_of

RETRY_BACKOFF_MS = 100  # Kafka's default: when new metadata is asked for at the earliest


@pytest.mark.parametrize("profile", PROFILES)
def test_new_metadata_is_asked_for_before_the_way_back_to_a_frozen_broker(profile) -> None:
    answer = load_component("spark").settings["common"]["kafka_read_answer_ms"].at(profile)
    options = turning_away(answer)
    assert options["kafka.reconnect.backoff.ms"] > RETRY_BACKOFF_MS
    assert options["kafka.metadata.max.age.ms"] < options["kafka.request.timeout.ms"]


@pytest.mark.parametrize("profile", PROFILES)
def test_offsets_are_asked_for_anew_once_a_dead_leader_has_a_successor(profile) -> None:
    controllers = load_component("kafka_controller").settings["controller.properties"]
    give_up = load_component("spark").settings["common"]["kafka_read_give_up_ms"].at(profile)
    options = asking_anew(give_up)
    session = controllers["broker.session.timeout.ms"].at(profile)
    assert options["kafka.default.api.timeout.ms"] > session
    assert options["fetchOffset.numRetries"] * give_up == 180_000


class Reader:
    """Spark's, which keeps the options that it is given."""

    def __init__(self) -> None:
        self.given: dict[str, Any] = {}

    def format(self, _: str) -> "Reader":
        return self

    def options(self, **options: Any) -> "Reader":
        self.given |= options
        return self

    def option(self, name: str, value: Any) -> "Reader":
        return self.options(**{name: value})

    def load(self) -> Any:
        return self

    def coalesce(self, _: int) -> "Reader":
        return self

    def unionByName(self, _: "Reader") -> "Reader":
        return self


def test_what_reads_in_batches_asks_anew() -> None:
    settings = settings_of("traffic")
    stream, batch, endless = Reader(), Reader(), Reader()
    place: Any = "brokers", "events", settings
    sources.stream(SimpleNamespace(readStream=stream), *place, max_offsets=1)  # type: ignore[arg-type]
    sources.records(SimpleNamespace(read=batch), *place, Batch({}, {}))  # type: ignore[arg-type]
    sources.endless(SimpleNamespace(readStream=endless), *place)  # type: ignore[arg-type]
    asked = [
        reader.given.get("kafka.default.api.timeout.ms") for reader in (stream, batch, endless)
    ]
    assert asked == [settings.kafka_read_give_up_ms] * 2 + [None]


@pytest.mark.parametrize(
    ("start", "polled"),
    [(10, 1), (5, 1), (20, 1), (2019, 1), (2020, 2000), (4, 2000)],
    ids=["in it", "at its start", "at its end", "within a poll", "behind that", "before it"],
)
def test_a_batch_beside_what_is_skipped_is_read_record_by_record(
    monkeypatch: pytest.MonkeyPatch, start: int, polled: int
) -> None:
    """Late events of a job are counted beside its query, and ended its executors again and again:
    a poll that begins before a batch's end reads on behind it."""
    monkeypatch.setattr(sources, "DataFrame", Reader)
    read, settings = Reader(), settings_of("traffic", max_poll_records=2000)
    skipped = [SkippedRange("events", 0, start, start + 1), SkippedRange("clicks", 0, 11, 12)]
    batch = Batch({"events": {"0": 5}}, {"events": {"0": 20}})
    spark: Any = SimpleNamespace(read=read)
    sources.records(spark, "brokers", "events", settings, batch, skipped)
    assert read.given["kafka.max.poll.records"] == polled
    fetched = read.given["kafka.max.partition.fetch.bytes"]
    assert (fetched < settings.fetch_max_bytes_per_partition) == (polled == 1)
