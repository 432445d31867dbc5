"""How far apart the times of two events may be that a query joins, by Spark's own reckoning.

A join keeps the events of either side until the watermark says that no partner comes any more. From
its condition Spark derives, for each side, up to which time behind the watermark it has to; where
it can't, the state stays for ever.
"""

from collections.abc import Iterator
from typing import Any

from pyspark import SparkContext

from millrace_jobs.declared.plan.refused import Refused
from millrace_jobs.declared.plan.tree import Expression, Node, sequence
from millrace_jobs.spark_internals import jvm, scala_object

_KEYS = "org.apache.spark.sql.catalyst.planning.ExtractEquiJoinKeys"
_STATE = (
    "org.apache.spark.sql.execution.streaming.operators.stateful.join"
    ".StreamingSymmetricHashJoinHelper"
)
# A watermark to reckon with. Numbers that fit into an Int don't come through to Scala as Longs.
_NOW_MS = 10**12
BOUND = "clicked BETWEEN shown AND shown + INTERVAL 1 HOUR"


def join_seconds(plan: Node, optimised: Node, context: SparkContext) -> int | None:
    """So far apart at most; None for a query that joins no streams.

    Args:
        optimised: the same plan as Spark would run it, in which conditions stand at their joins.

    Raises Refused.
    """
    if not (joins := streaming(plan)):
        return None
    for join in joins:
        if (kind := join.java.joinType().sql()) != "INNER":
            raise Refused(
                f"a join of type {kind}; rows that change as events come need an inner one: what"
                " has no partner is all less what has one",
                join,
            )
    bounds = [_bound_ms(join, context) for join in streaming(optimised)]
    return max((-(-bound // 1000) for bound in bounds), default=0)


def streaming(plan: Node) -> list[Node]:
    """The joins of two streams; what is beside a stream as a constant table has no state."""
    return [join for join in plan.all("Join") if all(side.is_streaming for side in join.children)]


def _bound_ms(join: Node, context: SparkContext) -> int:
    _refuse_mixed_times(join)
    keys = scala_object(context, _KEYS).unapply(join.java)
    if not keys.isDefined():
        raise Refused(
            "its join has no equation of columns of both sides, such as i.ad = c.ad", join
        )
    found, some = keys.get(), jvm(context).scala.Some
    left, right = (side.java.output() for side in join.children)
    predicates = scala_object(context, _STATE).getStateWatermarkPredicates(
        left,
        right,
        found._2(),
        found._3(),
        join.java.condition(),
        some(_NOW_MS),
        some(_NOW_MS),
        True,
    )
    sides = [one.get() for one in (predicates.left(), predicates.right()) if one.isDefined()]
    if len(sides) < 2:
        raise Refused(
            "its join doesn't bound the times of both sides from below and from above, as"
            f" {BOUND}: it would keep events for ever",
            join,
        )
    return max(_behind_ms(side, join) for side in sides)


def _behind_ms(side: Any, join: Node) -> int:
    if str(side.getClass().getSimpleName()) != "JoinStateValueWatermarkPredicate":
        raise Refused(
            f"its join equates times or windows; bound the times instead, as by {BOUND}", join
        )
    # Kept is what is later than this, so an event may wait for so long, and a millisecond more.
    return max(0, _NOW_MS - int(side.stateWatermark()) - 1)


def _refuse_mixed_times(join: Node) -> None:
    """A computed time such as ``shown + INTERVAL 1 HOUR AS until`` has no watermark, so Spark takes
    it for a constant, gives state up an hour early, and loses matches without a word."""
    if join.java.condition().isEmpty():
        return
    sides = [frozenset(one.id for one in side.output) for side in join.children]
    for conjunct in _conjuncts(Expression(join.java.condition().get())):
        mentioned = [Expression(one) for one in sequence(conjunct.java.references().toSeq())]
        of_both = all(any(one.id in side for one in mentioned) for side in sides)
        unmarked = [one.name for one in mentioned if not one.is_watermarked]
        if of_both and 0 < len(unmarked) < len(mentioned):
            raise Refused(
                f"its join compares a time with {', '.join(unmarked)}, which is computed from one:"
                " Spark would lose matches; write the computation into the join's condition",
                join,
            )


def _conjuncts(condition: Expression) -> Iterator[Expression]:
    if condition.kind != "And":
        yield condition
        return
    for part in condition.children:
        yield from _conjuncts(part)
