"""What a job's rows are, read off Spark's analysed plan; no query is started for it.

Keys are what the aggregation groups by, so a declaration can't get them wrong. What a stream can't
do, or what would give other rows when a batch runs again, is refused here, before a job stands by.
"""

import re
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from millrace_jobs import slots
from millrace_jobs.declaration import Refused, Settings
from millrace_jobs.outputs import CQL_TYPES, OWN, WINDOW_START, Output
from millrace_jobs.stream import Stream

WINDOW = "window"
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


def describe(job: str, summary: str, rows: DataFrame, stream: Stream, settings: Settings) -> Output:
    """Raises Refused where the rows can't be kept by key, in windows, exactly once."""
    if WINDOW not in rows.columns or not isinstance(rows.schema[WINDOW].dataType, StructType):
        raise Refused(
            f"job {job}: its rows have no column {WINDOW}; group by window({stream.event_time},"
            " …) and keep that column"
        )
    plan = rows._jdf.queryExecution().analyzed()
    aggregates = _aggregates(plan)
    if len(aggregates) != 1:
        raise Refused(f"job {job}: {len(aggregates)} aggregations; a job has exactly one")
    text = plan.toString().lower()
    if found := [name for name in UNREPEATABLE if name in text]:
        raise Refused(
            f"job {job}: {', '.join(found)}…) gives something else when a batch runs again"
        )
    types = {field.name: field.dataType.simpleString() for field in rows.schema.fields}
    key = _keys(job, plan, aggregates[0])
    del types[WINDOW]
    _refuse_columns(job, types, key, stream)
    values = {name: kind for name, kind in types.items() if name not in key}
    computed = {name: how for name, how in _computed(plan, aggregates[0]).items() if name in values}
    return Output(
        job=job,
        table=f"job_{settings['checkpoint']}",
        summary=summary,
        window_seconds=settings["window_seconds"],
        key={name: types[name] for name in key},
        values=values,
        approximate=dict.fromkeys(settings["approximate_columns"], settings["approximate_error"]),
        buckets=settings["buckets"],
        keep_seconds=settings["keep_days"] * 86400,
        state=[_EXPRESSION_ID.sub("", str(aggregates[0].simpleString(1000)))],
        sessions=slots.sessions(job, list(key), values, computed, stream.event_time, settings),
    )


def _refuse_columns(job: str, types: dict[str, str], key: list[str], stream: Stream) -> None:
    if taken := [name for name in types if name in OWN]:
        raise Refused(f"job {job}: columns {', '.join(taken)} are the framework's; rename them")
    if strange := [name for name, kind in types.items() if kind not in CQL_TYPES]:
        kinds = ", ".join(f"{name} is {types[name]}" for name in strange)
        raise Refused(f"job {job}: {kinds}; a column may be {', '.join(CQL_TYPES)}")
    optional = {field.name for field in stream.fields if not field.required}
    if nullable := [name for name in key if name in optional]:
        raise Refused(
            f"job {job}: {', '.join(nullable)} may be absent from an event, and a key may not be"
            " null; say what it is then, as in coalesce(campaign, '') AS campaign_or_none"
        )


def _aggregates(plan: Any) -> list[Any]:
    """The plan's aggregations, the topmost first."""
    found = [plan] if plan.nodeName() == "Aggregate" else []
    children = plan.children()
    for index in range(children.size()):
        found += _aggregates(children.apply(index))
    return found


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
        raise Refused(f"job {job}: its rows aren't grouped by {WINDOW}")
    if len(names) != len(grouping):
        missing = len(grouping) - len(names)
        raise Refused(
            f"job {job}: {missing} of the columns that it groups by are not among its columns:"
            f" rows that differ only in them would overwrite each other; it has {', '.join(names)}"
        )
    return [name for name in names if name != WINDOW]


def _computed(plan: Any, aggregate: Any) -> dict[str, Any]:
    """Column of the result → the aggregation's expression that it is, as it came from there."""
    found = {}
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
