"""Some windows of a SQL job are counted by another engine from the archive's files."""

import io
import math
from datetime import UTC, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from millrace.audit import second_look as module
from millrace.audit.archive import Archive, File
from millrace.audit.report import Plane
from millrace.audit.second_look import Described
from millrace.audit.second_truth import NotExpressible
from millrace.plan import load_plan

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
DESCRIBED = Described.of(
    {
        "job": "status_by_minute",
        "window_seconds": 60,
        "slide_seconds": 60,
        "join_seconds": None,
        "key": {"status": "int"},
        "values": {
            "requests": "bigint",
            "mean": "double",
            "visitors": "bigint",
            "sketch": "binary",
        },
        "approximate": {"visitors": 0.01},
    }
)


def row(**values: Any) -> dict[str, Any]:
    """As the API shows it."""
    return {
        "window_start": "2026-01-01T12:00:00Z",
        "status": 200,
        "requests": 2,
        "mean": 0.3,
        "visitors": 7,
        "version": 1,
    } | values


def counted(**values: Any) -> dict[str, Any]:
    """As DuckDB gives it."""
    at = NOON.replace(tzinfo=None)
    return row(window_start=at, mean=0.1 + 0.2, visitors=8, sketch=b"a") | values


def compared(truth: list[dict[str, Any]], found: list[dict[str, Any]]) -> dict[str, int]:
    plane = Plane("")
    module.compare(plane, DESCRIBED, truth, found)
    return {kind: getattr(plane, kind) for kind in ("lost", "duplicated", "wrong")}


@pytest.mark.parametrize(
    ("found", "kind"),
    [
        ([row()], ""),
        ([], "lost"),
        ([row(), row(status=404)], "duplicated"),
        ([row(requests=3)], "wrong"),
        ([row(mean=0.31)], "wrong"),
        ([row(mean=None)], "wrong"),
    ],
)
def test_each_difference_is_found(found: list[dict[str, Any]], kind: str) -> None:
    expected = {"lost": 0, "duplicated": 0, "wrong": 0} | ({kind: 1} if kind else {})
    assert compared([counted()], found) == expected


def test_what_is_no_number_is_null_for_readers() -> None:
    assert compared([counted(mean=math.nan)], [row(mean=None)])["wrong"] == 0


class Api:
    """Rows of some windows; pages of two."""

    def __init__(self, rows: list[dict[str, Any]]) -> None:
        self.rows = rows

    def get(self, _: str, **asked: Any) -> dict[str, Any]:
        start, end = (datetime.fromisoformat(asked[name]) for name in ("from", "to"))
        inside = [r for r in self.rows if start <= datetime.fromisoformat(r["window_start"]) < end]
        inside.sort(key=lambda r: r["window_start"], reverse=True)
        first = int(asked.get("cursor", 0))
        last = first + min(asked["limit"], 2)
        more = str(last) if last < len(inside) else None
        return {"rows": inside[first:last], "next": more}


def at(minutes: int, status: int = 200) -> dict[str, Any]:
    return row(window_start=(NOON + minutes * MINUTE).isoformat(), status=status)


def test_windows_are_sampled_all_over_the_range() -> None:
    api: Any = Api([at(0), at(1), at(14), at(16), at(16, 404)])
    found = list(module.sampled(api, DESCRIBED, NOON, NOON + 30 * MINUTE))
    assert found == [NOON + 16 * MINUTE, NOON + MINUTE]


def test_a_window_is_read_page_by_page_and_no_more_than_is_held(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    api: Any = Api([at(0, status) for status in range(5)] + [at(1)])
    assert len(module.stored(api, DESCRIBED, NOON)) == 5
    monkeypatch.setattr(module, "MOST_ROWS", 4)
    with pytest.raises(NotExpressible, match="more than 4 rows"):
        module.stored(api, DESCRIBED, NOON)


def archived(*seconds: float) -> Archive:
    """One file, of events with a number; without the column that came later."""
    times = [NOON + timedelta(seconds=each) for each in seconds]
    offsets = list(range(len(times)))
    content = io.BytesIO()
    table = pa.table(
        {
            "event_time": pa.array(times, pa.timestamp("us", "UTC")),
            "partition": pa.array([0] * len(times), pa.int32()),
            "offset": pa.array(offsets, pa.int64()),
        }
    )
    pq.write_table(table, content)
    hdfs: Any = SimpleNamespace(read=lambda _: content.getvalue())
    hour = int(NOON.timestamp()) // 3600
    return Archive(hdfs, "", [File("a", len(times), hour, hour, hour)])


def test_an_archive_is_read_between_two_times_and_a_new_field_is_null() -> None:
    schema = pa.schema(
        {"event_time": pa.timestamp("us", "UTC"), "offset": pa.int64(), "new": pa.string()}
    )
    found = archived(-1, 0, 30, 61).between(NOON, NOON + MINUTE, "event_time", schema)
    assert found["offset"].to_pylist() == [1, 2]
    assert found["new"].to_pylist() == [None, None]
    assert archived(-1, 0, 30, 61).rows_to_read(NOON, NOON + MINUTE) == 4
    assert archived(0).rows_to_read(NOON + 60 * MINUTE, NOON + 61 * MINUTE) == 0


def test_no_more_events_are_read_than_a_laptop_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "MOST_EVENTS", 3)
    events = load_plan("local").streams["events"]
    with pytest.raises(NotExpressible, match="have 4 events, and 3 are read here at most"):
        module.events_of(archived(0, 1, 2, 3), events, DESCRIBED, NOON, [])


def test_what_a_job_leaves_out_is_left_out_here() -> None:
    events = pa.table({"partition": [0, 0, 0, 1], "offset": [3, 4, 5, 4]})
    found = module.without(events, "events", [("events", 0, 4, 6), ("clicks", 0, 0, 9)])
    assert found.to_pylist() == [{"partition": 0, "offset": 3}, {"partition": 1, "offset": 4}]


def test_a_stream_s_copies_count_once() -> None:
    stream: Any = SimpleNamespace(deduplicate_by="id", event_time="at")
    events = pa.table({"id": ["a", "a", "b", "a"], "at": [1, 1, 1, 2]})
    assert module.once(events, stream).num_rows == 3
    stream.deduplicate_by = None
    assert module.once(events, stream).num_rows == 4


def test_a_query_of_ours_is_counted_by_duckdb() -> None:
    plan = load_plan("local")
    query = module.query_of(plan, "status_by_minute")
    settings = module.settings_of(plan, "traffic")
    fields = {name: module.TYPES[f.type] for name, f in plan.streams["events"].fields.items()}
    naive = {n: pa.timestamp("us") if n == "event_time" else kind for n, kind in fields.items()}
    times = [NOON.replace(tzinfo=None) + timedelta(seconds=each) for each in (0, 59, 60)]
    events = [{"event_time": time, "status": 200, "url": "/", "bytes": 1} for time in times]
    table = pa.Table.from_pylist(events, pa.schema(naive))
    rows = module.rows_of(query, settings, {"events": table})
    assert {(one["window_start"], one["status"], one["requests"]) for one in rows} == {
        (times[0], 200, 2),
        (times[2], 200, 1),
    }
    with pytest.raises(NotExpressible, match="a function in Python"):
        module.query_of(plan, "sessions")
