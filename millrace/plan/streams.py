"""Streams under a profile, and what of them can't work in an environment."""

from collections.abc import Collection, Iterator, Mapping
from datetime import UTC, datetime

from pydantic import Field

from millrace.config import Profile, absent
from millrace.config.streams import Stream
from millrace.plan.parts import Model

LONG_MAX = 2**63 - 1
# The longest window that a job sums over, in seconds.
LONGEST_WINDOW_SECONDS = 3600


class FieldPlan(Model):
    """What the jobs need of a field."""

    type: str
    required: bool
    minimum: int | None
    maximum: int | None
    earliest: str | None
    ahead_seconds: int | None


class StreamPlan(Model):
    """A stream under a profile. ``record_bytes`` bounds one record's value; without a schema of
    Avro's that is JSON."""

    topic: str
    key: str
    event_time: str
    id: str | None = Field(default=None, exclude_if=absent)
    deduplicate_by: str | None = Field(default=None, exclude_if=absent)
    avro_schema: str | None = Field(default=None, exclude_if=absent)
    record_bytes: int
    fields: dict[str, FieldPlan]

    @property
    def earliest_seconds(self) -> int:
        """The earliest time that an event may have, since 1970."""
        earliest = self.fields[self.event_time].earliest
        assert earliest  # validated: it is a time
        return int(datetime.fromisoformat(earliest).astimezone(UTC).timestamp())

    @property
    def ahead_seconds(self) -> int:
        """Returns how far an event may be ahead of its broker's clock."""
        ahead = self.fields[self.event_time].ahead_seconds
        assert ahead is not None  # validated: it is a time
        return ahead


def plan_stream(stream: Stream, topic: str, profile: Profile) -> StreamPlan:
    return StreamPlan(
        topic=topic,
        key=stream.key,
        event_time=stream.event_time,
        id=stream.id,
        deduplicate_by=stream.deduplicate_by,
        avro_schema=stream.avro_schema.text if stream.avro_schema else None,
        record_bytes=stream.record_bytes.at(profile),
        fields={
            name: FieldPlan(**field.model_dump(exclude={"why", "source"}))
            for name, field in stream.fields.items()
        },
    )


def problems(
    streams: Mapping[str, Stream],
    topics: set[str],
    events_per_second: int | None,
    counted: Collection[str] = (),
) -> Iterator[str]:
    """Why the streams can't be taken: a missing topic, sums that could overflow, or a job that
    counts what is to be left out.

    Args:
        events_per_second: the environment's load, None where it promises none.
        counted: streams of which a job that runs counts every record.
    """
    for name, stream in streams.items():
        where = f"configs/streams/{name}.yaml"
        if stream.topic not in topics:
            yield f"{where}: topic {stream.topic} isn't in configs/components/events.yaml"
        if stream.deduplicate_by and name in counted:
            yield (
                f"{where}: deduplicate_by: the job traffic counts every record of this stream; take"
                " it out of applications, or leave this out"
            )
        for field, rule in stream.fields.items():
            if rule.type != "long" or events_per_second is None:
                continue
            largest = max(abs(rule.minimum or 0), abs(rule.maximum or 0))
            if largest * events_per_second * LONGEST_WINDOW_SECONDS > LONG_MAX:
                yield (
                    f"{where}: fields.{field}: {events_per_second} events/s of {largest} would"
                    f" overflow a sum over {LONGEST_WINDOW_SECONDS} s"
                )
