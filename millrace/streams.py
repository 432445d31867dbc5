"""Models of ``configs/streams/``: what a record of a stream must be to count as an event.

Parsing, the reasons of dead letters, the archive's columns and the bounds that keep sums from
overflowing come from here. The jobs get a stream as `StreamPlan` in their configuration.
"""

from collections.abc import Collection, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, Self

from pydantic import Field, NonNegativeInt, field_validator, model_validator

from millrace.common.paths import CONFIGS
from millrace.config import Model, Name, Profile, Setting, absent, read_yaml, validate

NUMBERS = ("integer", "long")
LONG_MAX = 2**63 - 1
# The longest window that a job sums over, in seconds.
LONGEST_WINDOW_SECONDS = 3600


class StreamField(Model):
    """A field of an event. Numbers and times have a range, with its why and source.

    ``earliest`` is ISO 8601 with its zone; ``ahead_seconds`` is how far a time may be ahead of the
    record's broker time.
    """

    type: Literal["text", "time", "integer", "long"]
    required: bool = True
    minimum: int | None = None
    maximum: int | None = None
    earliest: str | None = None
    ahead_seconds: NonNegativeInt | None = None
    why: str | None = Field(default=None, min_length=10)
    source: str | None = Field(default=None, min_length=3)

    @field_validator("earliest")
    @classmethod
    def _has_a_zone(cls, earliest: str | None) -> str | None:
        if earliest is not None and datetime.fromisoformat(earliest).tzinfo is None:
            raise ValueError("needs its zone, such as 2000-01-01T00:00:00Z")
        return earliest

    @model_validator(mode="after")
    def _has_the_range_of_its_type(self) -> Self:
        is_number, is_time = self.type in NUMBERS, self.type == "time"
        numbers, times = (self.minimum, self.maximum), (self.earliest, self.ahead_seconds)
        if any((bound is None) == is_number for bound in numbers):
            raise ValueError("numbers, and they alone, need minimum and maximum")
        if any((bound is None) == is_time for bound in times):
            raise ValueError("times, and they alone, need earliest and ahead_seconds")
        if (is_number or is_time) and not (self.why and self.source):
            raise ValueError("a range needs why and source")
        if self.minimum is not None and self.maximum is not None and self.minimum > self.maximum:
            raise ValueError(f"minimum {self.minimum} is above maximum {self.maximum}")
        if self.type != "text" and not self.required:
            raise ValueError("only text may be left out")
        return self


class Stream(Model):
    """``configs/streams/<name>.yaml``; ``topic`` is one of those in components/events.yaml.

    ``deduplicate_by`` is the field that names an event, of a stream whose producers may send one
    again: declared jobs take its first copy. Copies have the event's time, too.
    """

    summary: str
    topic: str
    format: Literal["json"]
    key: Name
    event_time: Name
    deduplicate_by: Name | None = None
    record_bytes: Setting
    fields: dict[Name, StreamField]

    @model_validator(mode="after")
    def _names_its_fields(self) -> Self:
        for role, name in (("key", self.key), ("event_time", self.event_time)):
            if name not in self.fields:
                raise ValueError(f"{role}: no field {name}")
        if self.fields[self.event_time].type != "time":
            raise ValueError(f"event_time: {self.event_time} is no time")
        return self

    @model_validator(mode="after")
    def _names_its_events(self) -> Self:
        if self.deduplicate_by is not None:
            field = self.fields.get(self.deduplicate_by)
            if field is None or field.type != "text" or not field.required:
                raise ValueError(
                    f"deduplicate_by: {self.deduplicate_by} is no text that each event has"
                )
        return self


class FieldPlan(Model):
    """What the jobs need of a field."""

    type: str
    required: bool
    minimum: int | None
    maximum: int | None
    earliest: str | None
    ahead_seconds: int | None


class StreamPlan(Model):
    """A stream under a profile. ``record_bytes`` bounds one record's value."""

    topic: str
    key: str
    event_time: str
    deduplicate_by: str | None = Field(default=None, exclude_if=absent)
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
        """How far an event may be ahead of its broker's clock."""
        ahead = self.fields[self.event_time].ahead_seconds
        assert ahead is not None  # validated: it is a time
        return ahead


def plan_stream(stream: Stream, topic: str, profile: Profile) -> StreamPlan:
    return StreamPlan(
        topic=topic,
        key=stream.key,
        event_time=stream.event_time,
        deduplicate_by=stream.deduplicate_by,
        record_bytes=stream.record_bytes.at(profile),
        fields={
            name: FieldPlan(**field.model_dump(exclude={"why", "source"}))
            for name, field in stream.fields.items()
        },
    )


def problems(
    streams: dict[str, Stream],
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


def load_streams(configs: Path = CONFIGS) -> dict[str, Stream]:
    """All streams, by the names of their files."""
    paths = sorted((configs / "streams").glob("*.yaml"))
    return {path.stem: validate(Stream, read_yaml(path), path) for path in paths}
