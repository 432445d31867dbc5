"""The archive as a table: Delta's log says which files it consists of, Parquet says the rest."""

import io
import re
import tempfile
from collections import Counter
from collections.abc import Collection, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import date, datetime
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from deltalake import DeltaTable

from millrace.audit.truth import epoch_seconds
from millrace.cluster.hdfs import Hdfs
from millrace.plan import Plan

FETCHES = 4  # at once
TEXT = pa.dictionary(pa.int32(), pa.string())  # of few values, which the rows of an hour share
# What is compared and counted of an event, and where Kafka has it.
EMPTY = pa.schema(
    {
        "event_id": pa.string(),
        "event_time": pa.timestamp("us", "UTC"),
        "visitor_id": TEXT,
        "method": TEXT,
        "url": TEXT,
        "status": pa.int32(),
        "bytes": pa.int64(),
        "user_agent": TEXT,
        "kind": TEXT,
        "campaign": TEXT,
        "partition": pa.int32(),
        "offset": pa.int64(),
        "timestamp": pa.timestamp("us", "UTC"),
    }
).empty_table()
SHARED = [field.name for field in EMPTY.schema if field.type == TEXT]


OLD = 24  # millrace_jobs.sinks.archive: the hour of what was old when it came
EPOCH = date(1970, 1, 1)


@dataclass(frozen=True)
class File:
    """A file of the table. Hours are since 1970; ``hour`` is None if it has old events of several,
    from ``first`` to ``last``."""

    path: str
    rows: int
    hour: int | None
    first: int
    last: int

    def may_have(self, hours: Collection[int]) -> bool:
        if self.hour is not None:
            return self.hour in hours
        return any(self.first <= hour <= self.last for hour in hours)


class Archive:
    """One version of a stream's table.

    Args:
        folder: of the table, in HDFS.
    """

    def __init__(self, hdfs: Hdfs, folder: str, files: Sequence[File]) -> None:
        self._hdfs = hdfs
        self._path = folder
        self._files = files

    @classmethod
    def newest(cls, hdfs: Hdfs, plan: Plan, stream: str | None = None) -> "Archive":
        """The table as it is now.

        Args:
            stream: by default that of the events that `millrace load` sends.
        """
        common = plan.spark.settings.common
        folder = f"{common.archives}/{stream or common.stream}"
        return cls(hdfs, folder, _files_in(hdfs, folder))

    def rows_by_hour(self, days: Collection[int]) -> dict[int, int]:
        """Hours since 1970 with the number of their rows, as Delta's log counts them.

        What was old when it came has no hour in the log. Such a file is read if it may have events
        of one of these ``days`` (since 1970).
        """
        hours: Counter[int] = Counter()
        for file in self._files:
            if file.hour is not None:
                hours[file.hour] += file.rows
            elif any(24 * day <= file.last and file.first < 24 * (day + 1) for day in days):
                times = self._fetch(file, ["event_time"])["event_time"]
                hours.update(_hours_of(times).tolist())
        return dict(hours)

    def read(self, hours: set[int]) -> pa.Table:
        """Reads all rows of these hours (since 1970)."""
        files = [file for file in self._files if file.may_have(hours)]
        with ThreadPoolExecutor(FETCHES) as pool:
            parts = list(pool.map(lambda file: self._of_hours(file, hours), files))
        return pa.concat_tables(parts) if parts else EMPTY

    def between(
        self, first: datetime, last: datetime, event_time: str, schema: pa.Schema
    ) -> pa.Table:
        """Reads the rows whose ``event_time`` is in a range, both ends included. A column that a
        file doesn't have yet is null."""
        files = self._files_between(first, last)
        with ThreadPoolExecutor(FETCHES) as pool:
            parts = list(pool.map(lambda file: self._as(file, schema), files))
        rows = pa.concat_tables(parts) if parts else schema.empty_table()
        times = rows[event_time]
        inside = pc.and_(pc.greater_equal(times, first), pc.less_equal(times, last))
        return rows.filter(inside)

    def rows_to_read(self, first: datetime, last: datetime) -> int:
        """Counts the rows of the files that `between` reads, by Delta's log alone."""
        return sum(file.rows for file in self._files_between(first, last))

    def _files_between(self, first: datetime, last: datetime) -> list[File]:
        hours = range(_hour(first), _hour(last) + 1)
        return [file for file in self._files if file.may_have(hours)]

    def places(self) -> Counter[tuple[int, int]]:
        """Returns how often it has each record, by partition and offset. Reads all files."""
        names = ["partition", "offset"]
        with ThreadPoolExecutor(FETCHES) as pool:
            tables = list(pool.map(lambda file: self._fetch(file, names), self._files))
        return Counter(
            place
            for table in tables
            for place in zip(*(table[name].to_pylist() for name in names), strict=True)
        )

    def _of_hours(self, file: File, hours: set[int]) -> pa.Table:
        rows = self._fetch(file, EMPTY.column_names).cast(EMPTY.schema)
        if file.hour is not None:
            return rows
        return rows.filter(pa.array(np.isin(_hours_of(rows["event_time"]), list(hours))))

    def _as(self, file: File, schema: pa.Schema) -> pa.Table:
        found = pq.read_table(io.BytesIO(self._hdfs.read(f"{self._path}/{file.path}")))
        columns = [
            found[field.name].cast(field.type)
            if field.name in found.column_names
            else pa.nulls(found.num_rows, field.type)
            for field in schema
        ]
        return pa.table(columns, schema)

    def _fetch(self, file: File, columns: list[str]) -> pa.Table:
        content = self._hdfs.read(f"{self._path}/{file.path}")
        return pq.read_table(io.BytesIO(content), columns=columns, read_dictionary=SHARED)


def _files_in(hdfs: Hdfs, folder: str) -> list[File]:
    """Delta's reader needs the log only, so only the log is copied, from its checkpoint on."""
    log = f"{folder}/_delta_log"
    names = hdfs.names(log)
    wanted = [name for name in names if _is_needed(name, _last_checkpoint(names))]
    with tempfile.TemporaryDirectory(prefix="millrace-archive-") as place:
        copy = Path(place) / "_delta_log"
        copy.mkdir()
        with ThreadPoolExecutor(FETCHES) as pool:
            contents = pool.map(lambda name: hdfs.read(f"{log}/{name}"), wanted)
            for name, content in zip(wanted, contents, strict=True):
                (copy / name).write_bytes(content)
        return files_of(pa.table(DeltaTable(place).get_add_actions(flatten=True)))


def files_of(added: pa.Table) -> list[File]:
    """The files of a table, as `DeltaTable.get_add_actions` tells of them."""
    return [_file(action) for action in added.to_pylist()]


def _file(action: dict[str, Any]) -> File:
    path, rows = unquote(action["path"]), action["num_records"]
    day, hour = action["partition.event_date"], action["partition.event_hour"]
    if hour != OLD:
        of_events = (day - EPOCH).days * 24 + hour
        return File(path, rows, of_events, of_events, of_events)
    first, last = (_hour(action[f"{end}.event_time"]) for end in ("min", "max"))
    return File(path, rows, None, first, last)


def _hour(time: datetime) -> int:
    return int(time.timestamp()) // 3600


def _hours_of(times: pa.ChunkedArray) -> np.ndarray:
    """Of each time its hour since 1970."""
    hours: np.ndarray = epoch_seconds(times) // 3600
    return hours


def _version(name: str) -> int | None:
    """Returns the version of a log entry or a checkpoint (``….json``, ``….checkpoint.parquet``, in
    parts or not)."""
    match = re.fullmatch(r"(\d{20})(?:\.json|\.checkpoint\..*)", name)
    return int(match[1]) if match else None


def _last_checkpoint(names: list[str]) -> int:
    return max((_version(name) or 0 for name in names if ".checkpoint." in name), default=0)


def _is_needed(name: str, checkpoint: int) -> bool:
    if name == "_last_checkpoint":
        return True
    version = _version(name)
    return version is not None and version >= checkpoint
