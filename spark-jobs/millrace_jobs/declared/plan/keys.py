"""What names a row: the columns that the aggregation groups by, none of which is ever null.

And what becomes of rows above the aggregation: a row that is filtered out once it is stored would
stay, so what is filtered there may be keys alone.
"""

from collections.abc import Collection
from typing import Any

from pyspark import SparkContext

from millrace_jobs.declared.plan.refused import Refused
from millrace_jobs.declared.plan.tree import Expression, Node, sequence
from millrace_jobs.spark_internals import scala_object, scala_sequence

ROLLUP = "spark_grouping_id"
# What is done to rows once they are counted, and who can do it.
INSTEAD = {
    "Window": "a rank changes with rows that no event came for, so let readers rank the rows",
    "Sort": "rows have no order but their windows' and keys': let readers sort",
    "LocalLimit": "rows have no order: let readers take the first ones",
    "Generate": "explode events before they are counted",
    "Union": "count once, over a union of the events",
    "Join": "join the events before they are counted",
}
# They give null for an argument that a literal excludes.
DIVISIONS = {"Divide", "IntegralDivide", "Remainder", "Pmod"}
TRUNCATIONS = {"TruncTimestamp", "TruncDate"}
UNITS = {"YEAR", "QUARTER", "MONTH", "WEEK", "DAY", "HOUR", "MINUTE", "SECOND", "MILLISECOND"}
_CATALYST = "org.apache.spark.sql.catalyst"


def require_projections(plan: Node, aggregate: Node, key: Collection[int]) -> None:
    """Raises Refused for anything above the aggregation but projections, and filters of the key.

    Args:
        key: the numbers of its outputs that are grouped by.
    """
    ids = frozenset(key)
    for node in reversed(_above(plan, aggregate)):
        if node.kind == "Project":
            ids |= {
                one.id
                for one in node.made
                if one.kind == "Alias" and one.attributes and one.attributes <= ids
            }
        elif node.kind != "Filter":
            raise Refused(
                f"{node.kind} above the aggregation, where rows may be renamed and computed with;"
                f" {INSTEAD.get(node.kind, 'leave it out')}",
                node,
            )
        elif not node.condition.attributes <= ids:
            raise Refused(
                f"it filters rows by what is counted, {node.condition.sql}: a row that no longer"
                " qualifies would stay in the table and for readers of the topic; leave out HAVING"
                " (or the WHERE around the aggregation) and make it a column, by which readers"
                " filter",
                node.condition,
            )


def outputs_of(aggregate: Node, groupings: Collection[Expression]) -> set[int]:
    """The numbers of the aggregation's outputs that are one of these as it is."""
    return {
        one.id for one in aggregate.made if any(one.source.equals(found) for found in groupings)
    }


def renamed(plan: Node, aggregate: Node, ids: Collection[int]) -> frozenset[int]:
    """The numbers, followed through projections above the aggregation that rename columns."""
    found = frozenset(ids)
    for node in reversed(_above(plan, aggregate)):
        if node.kind == "Project":
            found |= {
                one.id
                for one in node.made
                if one.kind == "Alias" and one.source.is_attribute and one.source.id in found
            }
    return found


def refuse_nulls(aggregate: Node, window: Expression, context: SparkContext) -> None:
    """Raises Refused for a key that may be null, as far as streams and filters don't exclude it.

    A window's own column says that it may be; it never is.
    """
    groupings = aggregate.groupings
    if any(one.is_attribute and one.name == ROLLUP for one in groupings):
        raise Refused("ROLLUP, CUBE and GROUPING SETS give keys that are null", aggregate)
    proven = _proven(aggregate.child, context)
    for grouping in groupings:
        if grouping.is_attribute and grouping.id == window.id:
            continue
        if _may_be_null(Expression(_bound(grouping, proven, context))):
            raise Refused(
                f"{grouping.name if grouping.is_attribute else grouping.sql} may be null, and a key"
                " may not; say what it is then, as in coalesce(campaign, '') AS campaign_or_none",
                next((one for one in aggregate.made if one.source.equals(grouping)), grouping),
            )


def _may_be_null(bound: Expression) -> bool:
    """As Spark says it, but for a division by a number that isn't 0, and a unit of time that is."""
    if not bound.java.nullable():
        return False
    if not bound.children or any(map(_may_be_null, bound.children)):
        return True
    literals = [one.java.value() for one in bound.walk() if one.kind == "Literal"]
    if bound.kind in DIVISIONS:
        divisor = [one for one in bound.children[1].walk() if one.kind == "Literal"]
        return (
            len(divisor) != 1 or bound.children[1].attributes != frozenset() or _is_zero(divisor[0])
        )
    if bound.kind in TRUNCATIONS:
        return not any(str(one).upper() in UNITS for one in literals)
    if bound.kind == "Cast":  # what it can't cast ends the batch, unless it is only tried
        return str(bound.java.evalMode()) != "ANSI"
    return bound.kind not in ("Floor", "Ceil", "CheckOverflow")


def _is_zero(literal: Expression) -> bool:
    return float(str(literal.java.value())) == 0


def _above(plan: Node, aggregate: Node) -> list[Node]:
    """The nodes from the top down to the aggregation; it is in the plan once."""
    chain: list[Node] = []
    node = plan
    while node.java != aggregate.java:
        chain.append(node)
        if len(node.children) != 1:
            break
        node = node.child
    return chain


def _proven(below: Node, context: SparkContext) -> Any:
    """Output of a node, of which what its filters prove to be there is never null."""
    constraints = sequence(below.java.constraints().toSeq())
    proven = [
        one.child().exprId()
        for one in constraints
        if one.getClass().getSimpleName() == "IsNotNull" and Expression(one.child()).is_attribute
    ]
    ids = scala_sequence(context, proven)
    helper = scala_object(context, f"{_CATALYST}.analysis.StreamingJoinHelper")
    return helper.outputWithNullability(below.java.output(), ids)


def _bound(expression: Expression, output: Any, context: SparkContext) -> Any:
    attributes = scala_object(context, f"{_CATALYST}.expressions.package").AttributeSeq(output)
    references = scala_object(context, f"{_CATALYST}.expressions.BindReferences")
    return references.bindReference(expression.java, attributes, False)
