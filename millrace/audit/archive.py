"""The archive as a table: Delta's log says which files it consists of, Parquet says the rest."""

import io
import re
import tempfile
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from pathlib import Path
from urllib.parse import unquote

import pyarrow as pa
import pyarrow.parquet as pq
from deltalake import DeltaTable

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


class Archive:
    """One version of a stream's table, the newest when opened."""

    def __init__(self, hdfs: Hdfs, plan: Plan, stream: str | None = None) -> None:
        """
        Args:
            stream: by default that of the events that `millrace load` sends.
        """
        self._hdfs = hdfs
        common = plan.spark.settings.common
        self._path = f"{common.archives}/{stream or common.stream}"
        self._files = self._list_files()

    def places(self) -> Counter[tuple[int, int]]:
        """Returns how often it has each record, by partition and offset. Reads all files."""
        paths = map(unquote, self._files["path"].to_pylist())
        with ThreadPoolExecutor(FETCHES) as pool:
            columns = pool.map(self._fetch_places, paths)
        return Counter(chain.from_iterable(columns))

    def rows_by_hour(self) -> dict[int, int]:
        """Hours since 1970 with the number of their rows, as Delta's log counts them."""
        hours: dict[int, int] = {}
        for hour, rows in zip(self._hours(), self._files["num_records"].to_pylist(), strict=True):
            hours[hour] = hours.get(hour, 0) + rows
        return hours

    def read(self, hours: set[int]) -> pa.Table:
        """Reads all rows of these hours (since 1970)."""
        paths = [
            unquote(path)
            for path, hour in zip(self._files["path"].to_pylist(), self._hours(), strict=True)
            if hour in hours
        ]
        with ThreadPoolExecutor(FETCHES) as pool:
            parts = list(pool.map(self._fetch, paths))
        return pa.concat_tables(parts) if parts else EMPTY

    def _fetch(self, path: str) -> pa.Table:
        content = self._hdfs.read(f"{self._path}/{path}")
        found = pq.read_table(
            io.BytesIO(content), columns=EMPTY.column_names, read_dictionary=SHARED
        )
        return found.cast(EMPTY.schema)

    def _fetch_places(self, path: str) -> list[tuple[int, int]]:
        content = io.BytesIO(self._hdfs.read(f"{self._path}/{path}"))
        found = pq.read_table(content, columns=["partition", "offset"])
        return list(zip(*(found[name].to_pylist() for name in found.column_names), strict=True))

    def _hours(self) -> list[int]:
        days = self._files["partition.event_date"].cast(pa.int32()).to_pylist()
        hours = self._files["partition.event_hour"].to_pylist()
        return [24 * day + hour for day, hour in zip(days, hours, strict=True)]

    def _list_files(self) -> pa.Table:
        """Delta's reader needs the log only, so only the log is copied, from its checkpoint on."""
        log = f"{self._path}/_delta_log"
        names = self._hdfs.names(log)
        wanted = [name for name in names if _is_needed(name, _last_checkpoint(names))]
        with tempfile.TemporaryDirectory(prefix="millrace-archive-") as folder:
            copy = Path(folder) / "_delta_log"
            copy.mkdir()
            with ThreadPoolExecutor(FETCHES) as pool:
                contents = pool.map(lambda name: self._hdfs.read(f"{log}/{name}"), wanted)
                for name, content in zip(wanted, contents, strict=True):
                    (copy / name).write_bytes(content)
            return pa.table(DeltaTable(folder).get_add_actions(flatten=True))


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
