"""A stream as its jobs see it: the fields of an event, and what each may be.

Free of Spark and of libraries, because a driver imports it on its way to leading.
"""

from dataclasses import dataclass
from typing import Any

SQL_TYPES = {"text": "string", "time": "timestamp", "integer": "int", "long": "bigint"}


@dataclass(frozen=True)
class Field:
    """Numbers lie between ``minimum`` and ``maximum``, both included.

    Times lie between ``earliest`` (ISO 8601) and ``ahead_seconds`` after the record's broker time.
    """

    name: str
    type: str
    required: bool
    minimum: int | None = None
    maximum: int | None = None
    earliest: str | None = None
    ahead_seconds: int | None = None

    @property
    def sql_type(self) -> str:
        return SQL_TYPES[self.type]

    @property
    def is_number(self) -> bool:
        return self.type in ("integer", "long")


@dataclass(frozen=True)
class Stream:
    """``record_bytes`` is the largest value of a record that is looked at.

    ``id`` is the field that tells events apart, where there is one;
    ``deduplicate_by`` is the field that names an event, where producers may send one again;
    ``avro_schema`` is how values are encoded that aren't JSON.
    """

    name: str
    topic: str
    event_time: str
    record_bytes: int
    fields: tuple[Field, ...]
    id: str | None = None
    deduplicate_by: str | None = None
    avro_schema: str | None = None

    @classmethod
    def of(cls, name: str, content: dict[str, Any]) -> "Stream":
        """The stream that the plan describes under ``streams.NAME``."""
        return cls(
            name=name,
            topic=content["topic"],
            event_time=content["event_time"],
            record_bytes=content["record_bytes"],
            fields=tuple(Field(name, **field) for name, field in content["fields"].items()),
            id=content.get("id"),
            deduplicate_by=content.get("deduplicate_by"),
            avro_schema=content.get("avro_schema"),
        )

    @property
    def required(self) -> tuple[Field, ...]:
        return tuple(field for field in self.fields if field.required)

    @property
    def columns(self) -> dict[str, str]:
        """Name → SQL type of each field, in the archive's order."""
        return {field.name: field.sql_type for field in self.fields}
