"""What a job's rows are, read off Spark's analysed plan.

Keys are what the aggregation groups by, and windows as long as the query says, so a declaration
can't get them wrong. What a stream can't do, or what would give other rows when a batch runs again,
is refused here, before a job stands by.
"""

import keyword
import re
from collections.abc import Callable, Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F
from pyspark.sql.types import StructType

from millrace_jobs.declared.loader import InvalidJob
from millrace_jobs.declared.plan import joins, keys, python, repeatable, session_slots, windows
from millrace_jobs.declared.plan.refused import Refused
from millrace_jobs.declared.plan.tree import Expression, Node, optimised, trace, tree_of
from millrace_jobs.output import CQL_TYPES, OWN, PARAMETERS, WINDOW_START, Output
from millrace_jobs.settings import DeclaredSettings
from millrace_jobs.stream import Stream

WINDOW = "window"
MOMENT = "timestamp"
SAID_BY_THE_QUERY = ("window_seconds", "join_seconds")  # and by a setting, once
_WATERMARK = re.compile(r"-T\d+ms\b")  # which may change


def stored(rows: DataFrame) -> DataFrame:
    """The rows as they are stored: the window by its start, times as fine as Cassandra has them."""
    others = [
        F.date_trunc("MILLISECOND", field.name).alias(field.name)
        if field.dataType.simpleString() == MOMENT
        else field.name
        for field in rows.schema.fields
        if field.name != WINDOW
    ]
    return rows.select(F.col(f"{WINDOW}.start").alias(WINDOW_START), *others)


def describe(
    job: str,
    summary: str,
    rows: Callable[[], DataFrame],
    streams: Sequence[Stream],
    settings: DeclaredSettings,
) -> Output:
    """Raises InvalidJob where the rows can't be kept by key, in windows, exactly once.

    Args:
        rows: of streams of nothing; each call reads the declaration anew.
    """
    try:
        return _describe(job, summary, rows(), rows(), streams, settings)
    except Refused as refused:
        raise InvalidJob(f"job {job}: {refused}", refused.place) from refused


def _describe(
    job: str,
    summary: str,
    rows: DataFrame,
    again: DataFrame,
    streams: Sequence[Stream],
    settings: DeclaredSettings,
) -> Output:
    context, event_time = rows.sparkSession.sparkContext, streams[0].event_time
    if WINDOW not in rows.columns or not isinstance(rows.schema[WINDOW].dataType, StructType):
        raise Refused(
            f"its rows have no column {WINDOW}; group by window({event_time}, …) and keep that"
            " column"
        )
    plan = tree_of(rows)
    aggregate = _one_aggregation(plan)
    types = {field.name: field.dataType.simpleString() for field in rows.schema.fields}
    del types[WINDOW]
    _refuse_columns(types)
    _refuse_unbounded(plan)
    ids = {one.id for one in streams if one.id}
    python.refuse_python(plan, context)
    repeatable.refuse_unrepeatable(plan, ids, settings.approximate_columns, context)
    repeatable.refuse_moments(plan, tree_of(again))
    grouping, window = windows.window_of(aggregate, event_time)
    keys.refuse_nulls(aggregate, grouping, context)
    key = _key(plan, aggregate, grouping)
    _refuse_fine_moments(aggregate, key, types)
    values = {name: kind for name, kind in types.items() if name not in key}
    computed = {name: how for name, how in _computed(plan, aggregate).items() if name in values}
    output = Output(
        job=job,
        table=f"job_{settings.checkpoint}",
        summary=summary,
        window_seconds=window.length,
        slide_seconds=window.slide,
        offset_seconds=window.offset,
        join_seconds=joins.join_seconds(plan, optimised(plan, rows), context),
        key={name: types[name] for name in key},
        values=values,
        approximate=dict.fromkeys(settings.approximate_columns, settings.approximate_error),
        buckets=settings.buckets,
        keep_seconds=settings.keep_days * 86400,
        state=_state(plan, aggregate, streams),
        sessions=session_slots.sessions(key, values, computed, event_time, window, settings),
    )
    _refuse_other_words(output, settings)
    return output


def _refuse_other_words(output: Output, settings: DeclaredSettings) -> None:
    """A setting of earlier versions that says something else than the query."""
    for name in SAID_BY_THE_QUERY:
        given, said = settings.given.get(name), getattr(output, name)
        if given not in (None, said):
            raise Refused(f"its setting {name} is {given}, and its query says {said}; leave it out")


def _one_aggregation(plan: Node) -> Node:
    found = plan.all("Aggregate")
    if len(found) != 1:
        raise Refused(f"{len(found)} aggregations; a job has exactly one", *found[:1])
    for expression in (one for made in found[0].made for one in made.walk()):
        if expression.kind == "AggregateExpression" and expression.java.isDistinct():
            raise Refused(
                "DISTINCT within an aggregate takes two aggregations; count some thousands by"
                " size(collect_set(…)), and more by approx_count_distinct(…)",
                expression,
            )
    return found[0]


def _refuse_unbounded(plan: Node) -> None:
    """What would keep state for ever, and what says what the settings say."""
    for node in plan.all("Distinct"):
        raise Refused(
            "DISTINCT: a row is there once for each window and key anyway; of events that come"
            " again a stream's deduplicate_by takes one (docs/your-own-job.md)",
            node,
        )
    for node in plan.all("Deduplicate"):
        if not any(key.is_watermarked for key in node.keys):
            raise Refused(
                "it remembers every event for ever to find the ones that come again; a stream's"
                " deduplicate_by does it within the watermark (docs/your-own-job.md)",
                node,
            )
    for node in plan.all("EventTimeWatermark"):
        if any(below.kind == node.kind for below in node.child.walk()):
            raise Refused(
                "withWatermark is said by the setting watermark_seconds; leave it out", node
            )


def _key(plan: Node, aggregate: Node, window: Expression) -> list[str]:
    """Names, in the result, of the columns that the aggregation groups by, but for the window."""
    groupings = aggregate.groupings
    grouped = keys.outputs_of(aggregate, groupings)
    keys.require_projections(plan, aggregate, grouped)
    ids = keys.renamed(plan, aggregate, grouped)
    names = [one.name for one in plan.output if one.id in ids]
    of_window = keys.renamed(plan, aggregate, keys.outputs_of(aggregate, [window]))
    if WINDOW not in [one.name for one in plan.output if one.id in of_window]:
        raise Refused(f"its column {WINDOW} isn't the window that it groups by", aggregate)
    if len(names) != len(groupings):
        raise Refused(
            f"{len(groupings) - len(names)} of the columns that it groups by are not among its"
            " columns: rows that differ only in them would overwrite each other; it has"
            f" {', '.join(names)}",
            aggregate,
        )
    names.remove(WINDOW)
    if taken := [name for name in names if name in PARAMETERS]:
        raise Refused(
            f"key columns {', '.join(taken)} are parameters of the API, by which nobody could ask"
            " for them; rename them"
        )
    return names


def _refuse_columns(types: dict[str, str]) -> None:
    if taken := [name for name in types if name in OWN]:
        raise Refused(f"columns {', '.join(taken)} are the framework's; rename them")
    if unnameable := [name for name in types if not _is_name(name)]:
        raise Refused(
            f"{', '.join(map(repr, unnameable))}: no name that both Cassandra and Python take;"
            " give it another one, of letters, digits and _, as by AS total"
        )
    if strange := [name for name, kind in types.items() if kind not in CQL_TYPES]:
        kinds = ", ".join(f"{name} is {types[name]}" for name in strange)
        raise Refused(f"{kinds}; a column may be {', '.join(CQL_TYPES)}")


def _refuse_fine_moments(aggregate: Node, key: list[str], types: dict[str, str]) -> None:
    """Two keys that differ by less than a millisecond would be one row of Cassandra's."""
    for name in key:
        if types[name] == MOMENT:
            sources = [one for one in aggregate.groupings if one.type == MOMENT]
            if not all(_is_truncated(aggregate, one) for one in sources):
                raise Refused(
                    f"the key {name} is a time, and Cassandra keeps milliseconds: truncate it, as"
                    f" by date_trunc('SECOND', {name}) AS {name}",
                    sources[0],
                )


def _is_truncated(aggregate: Node, grouping: Expression) -> bool:
    return all(found.kind == "TruncTimestamp" for _, found in trace(aggregate.child, grouping))


def _is_name(column: str) -> bool:
    """Whether rows are read with it as it is: Cassandra's driver renames what no attribute has."""
    is_plain = column.isascii() and column.isidentifier() and not column.startswith("_")
    return is_plain and not keyword.iskeyword(column)


def _state(plan: Node, aggregate: Node, streams: Sequence[Stream]) -> list[str]:
    """What a checkpoint has of the plan; a place for each time that the query reads a stream."""
    readings = [f"{len(_leaves(plan))} readings of streams"] if len(streams) > 1 else []
    return [
        _text(aggregate),
        *map(_text, joins.streaming(plan)),
        *readings,
        *(f"{one.name} once by {one.deduplicate_by}" for one in streams if one.deduplicate_by),
    ]


def _leaves(plan: Node) -> list[Node]:
    return [node for node in plan.walk() if not node.children]


def _text(node: Node) -> str:
    return _WATERMARK.sub("", node.text())


def _computed(plan: Node, aggregate: Node) -> dict[str, Expression]:
    """Column of the result → the aggregation's expression that it is, as it came from there."""
    found: dict[str, Expression] = {}
    for one in aggregate.made:
        if one.kind == "Alias":
            ids = keys.renamed(plan, aggregate, {one.id})
            found |= {column.name: one.source for column in plan.output if column.id in ids}
    return found
