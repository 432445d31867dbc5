"""Models of ``configs/streams/``: what a record of a stream must be to count as an event.

Parsing, the reasons of dead letters, the archive's columns and the bounds that keep sums from
overflowing come from here. The jobs get a stream as the plan's `StreamPlan`.
"""

import json
from collections import Counter
from collections.abc import Iterator, Mapping
from datetime import datetime
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import Field, NonNegativeInt, field_validator, model_validator

from millrace.common.errors import Problems
from millrace.common.paths import CONFIGS
from millrace.config.load import read_yaml, validate
from millrace.config.model import Model, Name, Setting

NUMBERS = ("integer", "long")
# Avro's types by what a stream calls them; a union of one with null is taken, too.
AVRO_TYPES: dict[str, list[Any]] = {
    "text": ["string"],
    "integer": ["int"],
    "long": ["long"],
    "time": [
        {"type": "long", "logicalType": unit} for unit in ("timestamp-millis", "timestamp-micros")
    ],
}


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


class AvroField(Model):
    name: Name
    type: Any
    doc: str | None = None
    default: None = None

    def may_be(self, kind: str) -> bool:
        """Returns whether a stream's field of this type can have such values."""
        names = AVRO_TYPES[kind]
        return any(self.type in (name, ["null", name], [name, "null"]) for name in names)


class AvroSchema(Model):
    """``configs/streams/<name>.avsc``: how the values of a stream's records are encoded."""

    type: Literal["record"]
    name: str = Field(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")
    namespace: str | None = None
    doc: str | None = None
    fields: list[AvroField]

    def problems(self, fields: Mapping[str, StreamField]) -> Iterator[str]:
        """Says where the schema has something else than the stream's fields."""
        times = Counter(field.name for field in self.fields)
        yield from (f"{name} is not in the schema" for name in fields if name not in times)
        for field in self.fields:
            if field.name not in fields:
                yield f"{field.name} of the schema is no field"
            elif times[field.name] > 1:
                yield f"{field.name} stands twice in the schema"
            elif not field.may_be(kind := fields[field.name].type):
                names = " or ".join(map(json.dumps, AVRO_TYPES[kind]))
                yield (
                    f"{field.name} is {json.dumps(field.type)} in the schema; {kind} is {names},"
                    " or a union of that with null"
                )

    @property
    def text(self) -> str:
        """Returns all of the schema that a value depends on, as JSON."""
        fields = [{"name": field.name, "type": field.type} for field in self.fields]
        return json.dumps({"type": "record", "name": self.name, "fields": fields})


class Stream(Model):
    """``configs/streams/<name>.yaml``; ``topic`` is one of those in components/events.yaml.

    ``id`` is the field that tells events apart, of a stream that has one.
    ``deduplicate_by`` is the field that names an event, of a stream whose producers may send one
    again: declared jobs take its first copy. Copies have the event's time, too. Of format ``avro``
    the schema is in a file beside it.
    """

    summary: str
    topic: str
    format: Literal["json", "avro"]
    avro_schema: AvroSchema | None = None
    key: Name
    event_time: Name
    id: Name | None = None
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
        if not self.fields[self.key].required:
            raise ValueError(f"key: {self.key} may be left out of a record")
        return self

    @model_validator(mode="after")
    def _names_its_events(self) -> Self:
        for role, name in (("id", self.id), ("deduplicate_by", self.deduplicate_by)):
            field = self.fields.get(name) if name else None
            if name and (field is None or field.type != "text" or not field.required):
                raise ValueError(f"{role}: {name} is no text that each event has")
        return self

    @model_validator(mode="after")
    def _fits_its_schema(self) -> Self:
        if (self.format == "avro") != (self.avro_schema is not None):
            raise ValueError(
                "format: avro, and no other, has a schema: a file of this name that ends in .avsc"
            )
        if self.avro_schema and (problems := list(self.avro_schema.problems(self.fields))):
            raise ValueError("; ".join(problems))
        return self


def load_streams(configs: Path = CONFIGS) -> dict[str, Stream]:
    """Loads all streams, by the names of their files.

    Raises OperatorError with the problems of all files.
    """
    found: dict[str, Stream] = {}
    problems = Problems()
    for path in sorted((configs / "streams").glob("*.yaml")):
        with problems.caught():
            found[path.stem] = _load(path)
    problems.refuse()
    return found


def _load(path: Path) -> Stream:
    content, schema = read_yaml(path), path.with_suffix(".avsc")
    if schema.exists():  # JSON is YAML
        content["avro_schema"] = validate(AvroSchema, read_yaml(schema), schema)
    return validate(Stream, content, path)
