"""A few windows of a SQL job, counted by another engine, and held to what readers get.

The recount shares the job's code and Spark with what it looks at. This shares neither: DuckDB, the
archive's files, and the service's own API.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from millrace.audit.archive import Archive
from millrace.audit.report import Plane
from millrace.audit.second_truth import START, NotExpressible, rows_of
from millrace.cluster.hdfs import Hdfs
from millrace.cluster.insight_api import InsightApi
from millrace.common.paths import REPO
from millrace.config.jobs import declaration_of
from millrace.plan import Plan
from millrace.plan.streams import StreamPlan

SAMPLED = 3  # windows
LONGEST_ASKED = 2000  # windows that the API is asked for at once
MOST_ROWS = 20_000  # of a window
MOST_EVENTS = 5_000_000  # that are read for one
PAGE = 1000
DOUBLES_DIFFER = 1e-9  # sums of doubles depend on their order
TYPES = {
    "text": pa.string(),
    "time": pa.timestamp("us", "UTC"),
    "integer": pa.int32(),
    "long": pa.int64(),
}
COORDINATES = {
    "partition": pa.int32(),
    "offset": pa.int64(),
    "timestamp": pa.timestamp("us", "UTC"),
}

Row = Mapping[str, Any]
LeftOut = Sequence[tuple[str, int, int, int]]  # topic, partition, first offset, the one after


@dataclass(frozen=True)
class Described:
    """What the API says of a job's rows; ``exact`` are columns that are no estimates."""

    job: str
    window: timedelta
    slide: timedelta
    join: timedelta
    key: list[str]
    kinds: dict[str, str]
    exact: list[str]

    @classmethod
    def of(cls, said: Mapping[str, Any]) -> "Described":
        values = {name: kind for name, kind in said["values"].items() if kind != "binary"}
        return cls(
            job=said["job"],
            window=timedelta(seconds=said["window_seconds"]),
            slide=timedelta(seconds=said["slide_seconds"]),
            join=timedelta(seconds=said["join_seconds"] or 0),
            key=list(said["key"]),
            kinds=said["key"] | values,
            exact=[name for name in values if name not in said["approximate"]],
        )


def second_look(
    plan: Plan, described: Described, start: datetime, end: datetime, answer: Mapping[str, Any]
) -> Plane:
    """Some windows that start in a range, which isn't longer than an audit's.

    Args:
        answer: of the recount, which says what the job has left out.

    Raises NotExpressible where no other engine can say what the job says.
    """
    query = query_of(plan, described.job)
    lacking = {datetime.fromisoformat(each).replace(tzinfo=UTC) for each in answer["lacking"]}
    api = InsightApi(plan)
    windows = [at for at in sampled(api, described, start, end) if at not in lacking]
    number = "1 window" if len(windows) == 1 else f"{len(windows)} windows"
    plane = Plane(f"job {described.job}, {number} by DuckDB")
    settings = settings_of(plan, described.job)
    hdfs = Hdfs(plan)
    archives = {
        name: Archive.newest(hdfs, plan, name)
        for name in plan.spark.settings.streams_of(described.job)
    }
    for window in windows:
        events = {
            name: events_of(archive, plan.streams[name], described, window, answer["left_out"])
            for name, archive in archives.items()
        }
        truth = [row for row in rows_of(query, settings, events) if _at(row) == window]
        compare(plane, described, truth, stored(api, described, window))
    return plane


def query_of(plan: Plan, job: str) -> str:
    found = declaration_of(job, [REPO / folder for folder in plan.job_folders])
    if found is None or found[0].suffix != ".sql":
        raise NotExpressible("it is a function in Python")
    return found[0].read_text()


def settings_of(plan: Plan, job: str) -> dict[str, Any]:
    """What a query may name of its job's settings."""
    settings = plan.spark.settings
    return settings.common.model_dump() | settings.job(job).model_dump()


def sampled(
    api: InsightApi, described: Described, start: datetime, end: datetime
) -> Iterator[datetime]:
    """The newest window of each part of the range that has rows there, if one has."""
    third = (end - start) / SAMPLED
    longest = described.slide * LONGEST_ASKED
    for number in reversed(range(SAMPLED)):
        last = start + third * (number + 1)
        first = max(start + third * number, last - longest)
        [*rows] = rows_between(api, described, first, last, limit=1)
        if rows:
            yield datetime.fromisoformat(rows[0][START])


def stored(api: InsightApi, described: Described, window: datetime) -> list[dict[str, Any]]:
    """All rows of a window, as readers get them. Raises NotExpressible for more than are held."""
    rows: list[dict[str, Any]] = []
    for row in rows_between(api, described, window, window + timedelta(milliseconds=1)):
        rows.append(row)
        if len(rows) > MOST_ROWS:
            raise NotExpressible(f"the window of {window} has more than {MOST_ROWS:,} rows")
    return rows


def rows_between(
    api: InsightApi, described: Described, start: datetime, end: datetime, limit: int | None = None
) -> Iterator[dict[str, Any]]:
    """The newest window first; ``limit`` of them, or all, page by page."""
    asked: dict[str, Any] = {"from": start.isoformat(), "to": end.isoformat()}
    asked["limit"] = limit or PAGE
    while True:
        page = api.get(f"/v1/jobs/{described.job}", **asked)
        yield from page["rows"]
        if limit or page["next"] is None:
            return
        asked["cursor"] = page["next"]


def events_of(
    archive: Archive,
    declared: StreamPlan,
    described: Described,
    window: datetime,
    left_out: LeftOut,
) -> pa.Table:
    """What the archive has that a window may count, without what the job leaves out: times in UTC,
    and without their zone."""
    first, last = window - described.join, window + described.window + described.join
    fields = {name: TYPES[field.type] for name, field in declared.fields.items()}
    schema = pa.schema(list((fields | COORDINATES).items()))
    if (rows := archive.rows_to_read(first, last)) > MOST_EVENTS:
        raise NotExpressible(
            f"the hours of its window from {window} have {rows:,} events, and {MOST_EVENTS:,} are"
            " read here at most"
        )
    events = archive.between(first, last, declared.event_time, schema)
    events = once(without(events, declared.topic, left_out), declared)
    naive = {
        field.name: pa.timestamp("us") if pa.types.is_timestamp(field.type) else field.type
        for field in schema
    }
    return events.cast(pa.schema(list(naive.items())))


def without(events: pa.Table, topic: str, left_out: LeftOut) -> pa.Table:
    for where, partition, start, end in left_out:
        if where == topic:
            inside = pc.and_(
                pc.equal(events["partition"], partition),
                pc.and_(pc.greater_equal(events["offset"], start), pc.less(events["offset"], end)),
            )
            events = events.filter(pc.invert(inside))
    return events


def once(events: pa.Table, stream: StreamPlan) -> pa.Table:
    """One copy of each event, where the stream says what tells them apart."""
    if stream.deduplicate_by is None:
        return events
    names = (stream.deduplicate_by, stream.event_time)
    copies = zip(*(events[name].to_pylist() for name in names), strict=True)
    one_of_each = {copy: number for number, copy in enumerate(copies)}
    return events.take(list(one_of_each.values()))


def compare(plane: Plane, described: Described, truth: Iterable[Row], found: Iterable[Row]) -> None:
    """Adds what differs to the plane."""
    wanted, there = by_name(described, truth), by_name(described, found)
    plane.checked += len(wanted)
    plane.find("lost", [str(name) for name in wanted.keys() - there.keys()])
    plane.find("duplicated", [str(name) for name in there.keys() - wanted.keys()])
    for name in wanted.keys() & there.keys():
        if columns := differing(described, wanted[name], there[name]):
            plane.find("wrong", [f"{name}: {columns}"])


def by_name(described: Described, rows: Iterable[Row]) -> dict[tuple[Any, ...], Row]:
    found = [parsed(described, row) for row in rows]
    return {(row[START], *(row[column] for column in described.key)): row for row in found}


def differing(described: Described, truth: Row, found: Row) -> str:
    """Exact columns of the query; what else a row has was looked up when it was stored."""
    return ", ".join(
        f"{column} {truth[column]} ≠ {found[column]}"
        for column in described.exact
        if column in truth and not _same(truth[column], found[column])
    )


def parsed(described: Described, row: Row) -> dict[str, Any]:
    """The same of a row of DuckDB's and of one of the API's JSON."""
    kinds = described.kinds | {START: "timestamp"}
    return {name: _value(kinds[name], value) for name, value in row.items() if name in kinds}


def _value(kind: str, value: Any) -> Any:
    if kind == "timestamp" and value is not None:
        moment = datetime.fromisoformat(value) if isinstance(value, str) else value
        naive = moment.astimezone(UTC).replace(tzinfo=None) if moment.tzinfo else moment
        return naive.replace(microsecond=naive.microsecond // 1000 * 1000)  # as stored
    if kind == "date" and isinstance(value, str):
        return date.fromisoformat(value)
    if kind == "double" and value is not None:
        return float(value) if math.isfinite(value) else None  # as the API has it
    return value


def _same(truth: Any, found: Any) -> bool:
    if isinstance(truth, float) and isinstance(found, float):
        return math.isclose(truth, found, rel_tol=DOUBLES_DIFFER)
    return bool(truth == found)


def _at(row: Row) -> datetime:
    start: datetime = row[START]
    return start.replace(tzinfo=UTC)
