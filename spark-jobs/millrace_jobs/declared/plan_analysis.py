"""What a job's rows are, read off Spark's analysed plan; no query is started for it.

Keys are what the aggregation groups by, so a declaration can't get them wrong. What a stream can't
do, or what would give other rows when a batch runs again, is refused here, before a job stands by.
"""

import keyword
import re
from collections.abc import Sequence
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from millrace_jobs.declared import session_slots
from millrace_jobs.declared.loader import InvalidJob
from millrace_jobs.output import CQL_TYPES, OWN, WINDOW_START, Output
from millrace_jobs.settings import DeclaredSettings
from millrace_jobs.spark_internals import analysed_plan
from millrace_jobs.stream import Stream

WINDOW = "window"
JOIN = "join_seconds"  # the setting: how far apart the times of two events may be that are joined
# Give something else whenever a batch runs again.
UNREPEATABLE = (
    "current_timestamp(",
    "now(",
    "current_date(",
    "rand(",
    "randn(",
    "uuid(",
    "shuffle(",
)
_EXPRESSION_ID = re.compile(r"#\d+L?")


def stored(rows: DataFrame) -> DataFrame:
    """The rows as they are stored: the window by its start."""
    others = [name for name in rows.columns if name != WINDOW]
    return rows.select(F.col(f"{WINDOW}.start").alias(WINDOW_START), *others)


def describe(
    job: str, summary: str, rows: DataFrame, streams: Sequence[Stream], settings: DeclaredSettings
) -> Output:
    """Raises InvalidJob where the rows can't be kept by key, in windows, exactly once."""
    if WINDOW not in rows.columns or not isinstance(rows.schema[WINDOW].dataType, StructType):
        raise InvalidJob(
            f"job {job}: its rows have no column {WINDOW}; group by window({streams[0].event_time},"
            " …) and keep that column"
        )
    plan = analysed_plan(rows)
    aggregates = _nodes(plan, "Aggregate")
    if len(aggregates) != 1:
        raise InvalidJob(f"job {job}: {len(aggregates)} aggregations; a job has exactly one")
    text = plan.toString().lower()
    if found := [name for name in UNREPEATABLE if name in text]:
        raise InvalidJob(
            f"job {job}: {', '.join(found)}…) gives something else when a batch runs again"
        )
    types = {field.name: field.dataType.simpleString() for field in rows.schema.fields}
    key = _keys(job, plan, aggregates[0])
    del types[WINDOW]
    _refuse_columns(job, types, key, streams)
    joins = _nodes(plan, "Join")
    _refuse_joins(job, joins, settings)
    values = {name: kind for name, kind in types.items() if name not in key}
    computed = {name: how for name, how in _computed(plan, aggregates[0]).items() if name in values}
    return Output(
        job=job,
        table=f"job_{settings.checkpoint}",
        summary=summary,
        window_seconds=settings.window_seconds,
        key={name: types[name] for name in key},
        values=values,
        approximate=dict.fromkeys(settings.approximate_columns, settings.approximate_error),
        buckets=settings.buckets,
        keep_seconds=settings.keep_days * 86400,
        state=[
            _text(aggregates[0]),
            *map(_text, joins),
            *_readings(plan, streams),
            *(f"{one.name} once by {one.deduplicate_by}" for one in streams if one.deduplicate_by),
        ],
        sessions=session_slots.sessions(
            job, list(key), values, computed, streams[0].event_time, settings
        ),
    )


def _refuse_joins(job: str, joins: list[Any], settings: DeclaredSettings) -> None:
    """A join keeps both sides' events until the watermark says that no partner comes any more."""
    if bool(joins) != (settings.join_seconds is not None):
        what = "joins, and has no" if joins else "joins nothing, and has a"
        raise InvalidJob(
            f"job {job}: it {what} setting {JOIN}: how far apart the times of two events may be"
        )
    for join in joins:
        if (kind := join.joinType().sql()) != "INNER":
            raise InvalidJob(
                f"job {job}: a join of type {kind}; rows that change as events come need an inner"
                " one: what has no partner is all less what has one"
            )
        if not _bounds_times(join):
            raise InvalidJob(
                f"job {job}: its join has no condition on the times of both sides, such as clicked"
                " BETWEEN shown AND shown + INTERVAL"
                f" {settings.join_seconds} SECONDS: it would keep all events for ever"
            )


def _bounds_times(join: Any) -> bool:
    """Whether its condition mentions a time of either side."""
    if join.condition().isEmpty():
        return False
    mentioned = join.condition().get().references().toSeq()
    times = [
        column
        for column in map(mentioned.apply, range(mentioned.size()))
        if column.dataType().simpleString() == "timestamp"
    ]
    sides = (join.left().outputSet(), join.right().outputSet())
    return all(any(side.contains(column) for column in times) for side in sides)


def _readings(plan: Any, streams: Sequence[Stream]) -> list[str]:
    """A checkpoint has a place for each time that the query reads a stream."""
    return [f"{len(_leaves(plan))} readings of streams"] if len(streams) > 1 else []


def _refuse_columns(
    job: str, types: dict[str, str], key: list[str], streams: Sequence[Stream]
) -> None:
    if taken := [name for name in types if name in OWN]:
        raise InvalidJob(f"job {job}: columns {', '.join(taken)} are the framework's; rename them")
    if unnameable := [name for name in types if not _is_name(name)]:
        raise InvalidJob(
            f"job {job}: {', '.join(map(repr, unnameable))}: no name that both Cassandra and Python"
            " take; give it another one, of letters, digits and _, as by AS total"
        )
    if strange := [name for name, kind in types.items() if kind not in CQL_TYPES]:
        kinds = ", ".join(f"{name} is {types[name]}" for name in strange)
        raise InvalidJob(f"job {job}: {kinds}; a column may be {', '.join(CQL_TYPES)}")
    optional = {field.name for one in streams for field in one.fields if not field.required}
    if nullable := [name for name in key if name in optional]:
        raise InvalidJob(
            f"job {job}: {', '.join(nullable)} may be absent from an event, and a key may not be"
            " null; say what it is then, as in coalesce(campaign, '') AS campaign_or_none"
        )


def _is_name(column: str) -> bool:
    """Whether rows are read with it as it is: Cassandra's driver renames what no attribute has."""
    is_plain = column.isascii() and column.isidentifier() and not column.startswith("_")
    return is_plain and not keyword.iskeyword(column)


def _nodes(plan: Any, name: str) -> list[Any]:
    """The plan's nodes of that name, the topmost first."""
    found = [plan] if plan.nodeName() == name else []
    return found + [node for child in _children(plan) for node in _nodes(child, name)]


def _leaves(plan: Any) -> list[Any]:
    return [leaf for child in _children(plan) for leaf in _leaves(child)] or [plan]


def _children(plan: Any) -> list[Any]:
    children = plan.children()
    return [children.apply(index) for index in range(children.size())]


def _text(node: Any) -> str:
    """The node as Spark prints it, without numbers that each analysis has anew."""
    return _EXPRESSION_ID.sub("", str(node.simpleString(1000)))


def _keys(job: str, plan: Any, aggregate: Any) -> list[str]:
    """Names, in the result, of the columns that the aggregation groups by, but for the window."""
    groups = aggregate.groupingExpressions()
    grouping = [groups.apply(index) for index in range(groups.size())]
    ids = set()
    outputs = aggregate.aggregateExpressions()
    for index in range(outputs.size()):
        named = outputs.apply(index)
        source = named.child() if named.nodeName() == "Alias" else named
        if any(source.semanticEquals(expression) for expression in grouping):
            ids.add(named.exprId().id())
    ids = _renamed(plan, ids)
    columns = plan.output()
    names = [
        columns.apply(i).name()
        for i in range(columns.size())
        if columns.apply(i).exprId().id() in ids
    ]
    if WINDOW not in names:
        raise InvalidJob(f"job {job}: its rows aren't grouped by {WINDOW}")
    if len(names) != len(grouping):
        missing = len(grouping) - len(names)
        raise InvalidJob(
            f"job {job}: {missing} of the columns that it groups by are not among its columns:"
            f" rows that differ only in them would overwrite each other; it has {', '.join(names)}"
        )
    return [name for name in names if name != WINDOW]


def _computed(plan: Any, aggregate: Any) -> dict[str, Any]:
    """Column of the result → the aggregation's expression that it is, as it came from there."""
    found: dict[str, Any] = {}
    outputs, columns = aggregate.aggregateExpressions(), plan.output()
    for index in range(outputs.size()):
        named = outputs.apply(index)
        if named.nodeName() == "Alias":
            ids = _renamed(plan, {named.exprId().id()})
            names = (
                columns.apply(i).name()
                for i in range(columns.size())
                if columns.apply(i).exprId().id() in ids
            )
            found |= dict.fromkeys(names, named.child())
    return found


def _renamed(plan: Any, ids: set[int]) -> set[int]:
    """The ids, followed through projections above the aggregation that rename columns."""
    chain = []
    node = plan
    while node.nodeName() != "Aggregate":
        chain.append(node)
        node = node.children().apply(0)
    for node in reversed(chain):
        if node.nodeName() != "Project":
            continue
        columns = node.projectList()
        for index in range(columns.size()):
            column = columns.apply(index)
            if column.nodeName() != "Alias":
                continue
            source = column.child()
            if source.nodeName() == "AttributeReference" and source.exprId().id() in ids:
                ids = ids | {column.exprId().id()}
    return ids
