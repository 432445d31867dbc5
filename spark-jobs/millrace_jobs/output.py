"""What a declared job stores: a table of its windows' rows, described so that others can read it.

Free of Spark. A description goes from the driver to the table ``job_outputs``; the insight API
makes the job's route and panel of it, the audit its comparison.
"""

import json
import math
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from millrace_shared.buckets import bucket, plain
from millrace_shared.generations import STREAM, bucket_of

# Spark's types that a row may have → Cassandra's.
CQL_TYPES = {
    "string": "text",
    "int": "int",
    "bigint": "bigint",
    "double": "double",
    "boolean": "boolean",
    "date": "date",
    "timestamp": "timestamp",
    "binary": "blob",
}
WINDOW_START = "window_start"
# Of a row, of its record, or of its answer.
OWN = ("day", "bucket", WINDOW_START, "window_end", "final", "version", "key", "job")
PARAMETERS = ("from", "to", "limit", "cursor")  # of the API, beside the columns of the key


@dataclass(frozen=True)
class Window:
    """Windows that begin every ``slide`` seconds, ``offset`` behind its multiples since 1970, and
    are ``length`` long. So an event is in several where they overlap."""

    length: int
    slide: int
    offset: int = 0

    @classmethod
    def plain(cls, seconds: int) -> "Window":
        """One follows the other, from 1970 on."""
        return cls(seconds, seconds)

    @property
    def is_plain(self) -> bool:
        return self == self.plain(self.length)

    @property
    def name(self) -> str:
        """``1m`` or ``1h``; ``10m by 1m`` where they overlap, ``1d from 5h`` with an offset."""
        by = f" by {span(self.slide)}" if self.slide != self.length else ""
        return span(self.length) + by + (f" from {span(self.offset)}" if self.offset else "")


@dataclass(frozen=True)
class Sessions:
    """How rows that are slots become sessions: whoever reads them merges them.

    A session is a run of one key's slots between which less than ``gap_seconds`` passed.

    Attributes:
        pages: the value column by which a session bounced: it has one at most.
        merges: value column → what a session has of its slots' values: ``start``, ``end``, ``sum``,
            ``min``, ``max``, ``first`` or ``last``.
    """

    gap_seconds: int
    pages: str
    merges: dict[str, str]


@dataclass(frozen=True)
class Output:
    """The rows of one job, each named by its window's start and its ``key``.

    Attributes:
        table: named after the checkpoint: a job that starts anew writes a table of its own.
        window_seconds, slide_seconds, offset_seconds: see `Window`.
        join_seconds: how far apart the times of two events may be that are joined; None without a
            join.
        key, values: column → Spark's type.
        approximate: value column → its relative standard error; the others are exact.
        buckets: partitions of a day.
        keep_seconds: age at which a row goes.
        state: what a checkpoint's state depends on, as text; equal text, same state.
        sessions: None unless the rows are slots of sessions.
    """

    job: str
    table: str
    summary: str
    window_seconds: int
    slide_seconds: int
    offset_seconds: int
    join_seconds: int | None
    key: dict[str, str]
    values: dict[str, str]
    approximate: dict[str, float]
    buckets: int
    keep_seconds: int
    state: list[str]
    sessions: Sessions | None = None

    @property
    def window(self) -> Window:
        return Window(self.window_seconds, self.slide_seconds, self.offset_seconds)

    @property
    def columns(self) -> tuple[str, ...]:
        """The table's columns, in the order in which `row` gives their values."""
        return ("day", "bucket", WINDOW_START, *self.key, *self.values, "version")

    def row(
        self, values: Mapping[str, Any], version: int, generation: int = STREAM
    ) -> tuple[Any, ...]:
        """A row as it is stored. Raises ValueError for a key that Cassandra can't hold."""
        names = tuple(values[name] for name in self.key)
        if any(name is None for name in names):
            raise ValueError(f"job {self.job}: a null in a row's key: {names}")
        start = values[WINDOW_START]
        return (
            start.date(),
            bucket_of(bucket(names, self.buckets), generation),
            start,
            *names,
            *(values[name] for name in self.values),
            version,
        )

    def record(self, values: Mapping[str, Any], version: int) -> dict[str, Any]:
        """The row in the results topic: the whole value, so the last one of a ``key`` wins."""
        told = {name: _json(values[name]) for name in (*self.key, *self.values)}
        return self._named(values) | told | {"version": version}

    def record_gone(self, values: Mapping[str, Any], version: int) -> dict[str, Any]:
        """What takes a row's place there once readers see another count, which hasn't got it."""
        told = {name: _json(values[name]) for name in self.key}
        return self._named(values) | told | {"gone": True, "version": version}

    def _named(self, values: Mapping[str, Any]) -> dict[str, Any]:
        start = plain(values[WINDOW_START])
        names = [plain(values[name]) for name in self.key]
        return {
            "key": "|".join(map(str, (self.job, start, *names))),
            "job": self.job,
            WINDOW_START: start,
        }

    def create_table(self, keyspace: str) -> str:
        """The statement that makes the table where it is missing."""
        columns = {"day": "date", "bucket": "int", WINDOW_START: "timestamp"}
        columns |= {name: CQL_TYPES[kind] for name, kind in (self.key | self.values).items()}
        columns["version"] = "bigint"
        definitions = ", ".join(f'"{name}" {kind}' for name, kind in columns.items())
        clustering = ", ".join(f'"{name}"' for name in (WINDOW_START, *self.key))
        return (
            f'CREATE TABLE IF NOT EXISTS {keyspace}."{self.table}" ({definitions},'
            f' PRIMARY KEY (("day", "bucket"), {clustering}))'
            f" WITH default_time_to_live = {self.keep_seconds}"
        )

    def add_columns(self, keyspace: str) -> str:
        """The statement that gives a table of an earlier version the columns that it lacks."""
        kinds = {**self.values, "version": "bigint"}
        columns = ", ".join(f'"{name}" {CQL_TYPES[kind]}' for name, kind in kinds.items())
        return f'ALTER TABLE {keyspace}."{self.table}" ADD IF NOT EXISTS ({columns})'

    def keep(self, keyspace: str) -> str:
        """The statement by which rows that are written from now on stay as long as is said."""
        kept = f"default_time_to_live = {self.keep_seconds}"
        return f'ALTER TABLE {keyspace}."{self.table}" WITH {kept}'

    def to_json(self) -> str:
        return json.dumps(asdict(self))


def _json(value: Any) -> Any:
    """What is no number, such as 0/0, is null there, as the API has it: JSON has no word for it."""
    return None if isinstance(value, float) and not math.isfinite(value) else plain(value)


def span(seconds: int) -> str:
    """In the largest unit that divides it: ``30m``."""
    for unit, size in (("d", 86400), ("h", 3600), ("m", 60)):
        if seconds % size == 0:
            return f"{seconds // size}{unit}"
    return f"{seconds}s"
