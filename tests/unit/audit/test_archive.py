"""The archive's files, as Delta's log tells of them, and as they are read."""

import io
from datetime import UTC, date, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq

from millrace.audit.archive import EMPTY, OLD, Archive, files_of

DAY = date(2026, 1, 1)
FIRST = (DAY - date(1970, 1, 1)).days
MIDNIGHT = datetime(2026, 1, 1, tzinfo=UTC)


def parquet(times: list[datetime]) -> bytes:
    rows = [{"event_id": str(number), "event_time": time} for number, time in enumerate(times)]
    written = io.BytesIO()
    pq.write_table(pa.Table.from_pylist(rows, EMPTY.schema), written)
    return written.getvalue()


def archive(files: dict[tuple[date, int], list[datetime]]) -> Archive:
    """With these files' events, by partition."""
    contents = {f"{day}/{hour}": parquet(times) for (day, hour), times in files.items()}
    actions = [
        {
            "path": f"{day}/{hour}",
            "num_records": len(times),
            "partition.event_date": day,
            "partition.event_hour": hour,
            "min.event_time": min(times),
            "max.event_time": max(times),
        }
        for (day, hour), times in files.items()
    ]
    hdfs: Any = SimpleNamespace(read=lambda path: contents[path.removeprefix("/archive/")])
    return Archive(hdfs, "/archive", files_of(pa.Table.from_pylist(actions)))


def test_what_was_old_when_it_came_is_found_by_its_own_time() -> None:
    then = MIDNIGHT - timedelta(days=3)
    early = MIDNIGHT - timedelta(days=4000)
    found = archive(
        {
            (DAY, 1): [MIDNIGHT + timedelta(minutes=61)],
            (DAY, OLD): [then, then + timedelta(minutes=59), then + timedelta(hours=1), early],
            (DAY, 0): [MIDNIGHT],
        }
    )
    hour = 24 * (FIRST - 3)
    assert found.rows_by_hour([FIRST]) == {24 * FIRST + 1: 1, 24 * FIRST: 1}
    counted = found.rows_by_hour([FIRST - 3])
    assert (counted[hour], counted[hour + 1], counted[24 * FIRST]) == (2, 1, 1)
    assert 24 * (FIRST + 1) not in counted  # no hour of the day after
    assert found.read({hour})["event_time"].to_pylist() == [then, then + timedelta(minutes=59)]
    assert found.read({24 * FIRST, 24 * FIRST + 1}).num_rows == 2
    assert found.read({hour + 2}).num_rows == 0
