"""What gives something else when a batch runs again, or its events come in another order.

Spark calls every aggregation deterministic, so those whose answer depends on order are named here.
"""

from collections.abc import Collection, Iterator

from pyspark import SparkContext

from millrace_jobs.declared.plan.refused import Refused
from millrace_jobs.declared.plan.tree import Expression, Node
from millrace_jobs.spark_internals import jvm

# Of several values that are equally right they take the one that comes first.
OF_ANY = {"First", "Last", "AnyValue", "Mode", "PandasMode", "ListAgg"}
# They are of one event, the same one as long as no two have the same order.
OF_ORDER = {"MinBy", "MaxBy", "MinByBuilder", "MaxByBuilder", "MaxMinByK"}
# Lists in the order in which events came; what is around them may do away with it.
LISTS = {"CollectList", "CollectSet"}
ORDERED_AWAY = {"Size", "ArraySize", "ArraySort", "SortArray"}
# Sketches of which two of the same events differ a little.
SKETCHES = {
    "ApproximatePercentile",
    "ApproxTopK",
    "HistogramNumeric",
    "KllSketchAggBigint",
    "KllSketchAggDouble",
    "KllSketchAggFloat",
}


def refuse_unrepeatable(
    plan: Node, ids: Collection[str], approximate: Collection[str], context: SparkContext
) -> None:
    """Raises Refused.

    Args:
        ids: fields that tell events apart.
        approximate: columns of which a small difference is expected.
    """
    current = jvm(context).org.apache.spark.sql.catalyst.trees.TreePattern.CURRENT_LIKE()
    for node in plan.walk():
        for expression in node.expressions:
            if not expression.is_deterministic or expression.java.containsPattern(current):
                culprit = _innermost(expression, current)
                raise Refused(
                    f"{culprit.function}() gives something else when a batch runs again", culprit
                )
            for found in _order_dependent(expression, ids, approximate):
                raise found


def refuse_moments(first: Node, again: Node) -> None:
    """Raises Refused where a query, analysed twice, has a moment in it."""
    if _said(first) != _said(again):
        raise Refused(
            "it says something else each time that it is read, such as datetime.now() or"
            " timestamp'now'; use the events' own times"
        )


def _said(plan: Node) -> list[str]:
    """The plan as text. A watermark's node has a random number; it is the framework's own."""
    return [node.text() for node in plan.walk() if node.kind != "EventTimeWatermark"]


def _innermost(expression: Expression, current: object) -> Expression:
    for child in expression.children:
        if not child.is_deterministic or child.java.containsPattern(current):
            return _innermost(child, current)
    return expression


def _order_dependent(
    expression: Expression,
    ids: Collection[str],
    approximate: Collection[str],
    above: str = "",
    column: str = "",
) -> Iterator[Refused]:
    kind = expression.kind
    column = expression.name if kind == "Alias" else column
    if kind in OF_ANY:
        yield Refused(
            f"{expression.function}() takes what comes first, and that is another event when a"
            " batch runs again; min_by(url, struct(event_time, event_id)) is always the same",
            expression,
        )
    if kind in OF_ORDER and not _decides(expression.children[1], expression.children[0], ids):
        yield Refused(
            f"{expression.function}() by {expression.children[1].sql} takes any of the events that"
            " are equal in that; add what tells events apart (a stream's `id`), or the value,"
            " as in struct(event_time, event_id)",
            expression,
        )
    if kind in LISTS and above not in ORDERED_AWAY:
        yield Refused(
            f"{expression.function}() has the order in which events came; sort it, as by"
            " array_sort(…), or count it by size(…)",
            expression,
        )
    if kind in SKETCHES and column not in approximate:
        yield Refused(
            f"{expression.function}() is an estimate that depends on order; name its column under"
            " approximate_columns",
            expression,
        )
    above = above if kind in ("AggregateExpression", "Cast") else kind
    for child in expression.children:
        yield from _order_dependent(child, ids, approximate, above, column)


def _decides(order: Expression, value: Expression, ids: Collection[str]) -> bool:
    """Whether events that are equal in their order have the same value."""
    names = {one.name for one in order.walk() if one.is_attribute}
    return (
        value.attributes <= order.attributes
        or not names.isdisjoint(ids)
        or names >= {"partition", "offset"}
    )
