"""Which events the rows of a plan are of: the same plan without its counting.

A plan filters, renames and joins events before it counts them. The places of the events are led
through all of that beside its columns, up to the aggregation, which is left out. What is left are
the columns of each row's key, once for each event that the row is of. Only what keeps events apart
is led through; for anything else nobody could say which event a row is of, and it is refused.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import count
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from millrace_jobs.declared.plan.refused import Refused
from millrace_jobs.declared.plan.tree import Expression, Node, sequence, tree_of
from millrace_jobs.spark_internals import analysed_plan, frame_of, jvm, scala_sequence

PLACE = ("topic", "partition", "offset")  # of an event, as its archive has it
_PLACES = "__places"
_COPIES = "Deduplicate"
# What gives its child's rows as they are, some of them, or each several times.
_PASSING = {
    "EventTimeWatermark",
    "Filter",
    "Generate",
    "Repartition",
    "RepartitionByExpression",
    "ResolvedHint",
    _COPIES,
}
# A join → which of its sides may be events. Of others a row is there without a partner.
_SIDES = {
    "INNER": (True, True),
    "CROSS": (True, True),
    "LEFT OUTER": (True, False),
    "RIGHT OUTER": (False, True),
}
_LEFT_ALONE = {"LEFT SEMI", "LEFT ANTI"}


def origins(rows: DataFrame, *, with_copies: bool = False) -> DataFrame:
    """What is left of a frame's columns, and `PLACE` of an event: once for each of a row's events,
    or for each pair that a join makes.

    Args:
        rows: of events of archives, with one aggregation.
        with_copies: also of the events that de-duplication drops.

    Raises Refused where it can't be said which events a row is of.
    """
    carried = _Carrier(rows, with_copies).carry(tree_of(rows))
    if carried.places is None:
        raise Refused("it reads no events")
    found = frame_of(rows.sparkSession, carried.node.java)
    names = [one.name for one in carried.node.output if not one.name.startswith(_PLACES)]
    place = F.explode(carried.places.name).alias(_PLACES)
    return found.select(*names, place).select(*names, *(f"{_PLACES}.{name}" for name in PLACE))


def fields_used(optimised: Node, fields: Iterable[str]) -> list[str]:
    """Those of the events' fields that a plan does something with.

    Args:
        optimised: in which columns that nobody asks for are left out at once.
    """
    leaves = {one.id: one.name for node in _leaves(optimised) for one in node.output}
    used = {
        leaves[number]
        for node in optimised.walk()
        if node.children
        for number in node.references
        if number in leaves
    }
    return [name for name in fields if name in used]


@dataclass(frozen=True)
class _Carried:
    """A node, and that of its columns which has the places; None where there are no events."""

    node: Node
    places: Expression | None


class _Carrier:
    """Leads places through one plan."""

    def __init__(self, rows: DataFrame, with_copies: bool) -> None:
        self._session = rows.sparkSession
        self._context = self._session.sparkContext
        self._with_copies = with_copies
        self._numbers = count()  # each column of places has a name of its own

    def carry(self, node: Node) -> _Carried:
        """Raises Refused."""
        _refuse_queries_within(node)
        if not node.children:
            return self._leaf(node)
        if node.kind == "Join":
            return self._join(node)
        if node.kind == "Union":
            return self._union(node)
        if node.kind in ("Project", "Aggregate"):
            return self._made(node)
        below = self.carry(node.child)
        if node.kind == _COPIES and self._with_copies:
            return below
        if node.kind == "Filter" and not node.condition.attributes <= _ids(below.node):
            raise Refused("it filters rows by what is counted", node.condition)
        if node.kind == "Expand" and below.places is not None:
            return self._expand(node, below, below.places)
        if node.kind in _PASSING or below.places is None:
            return _Carried(self._with_children(node, [below.node]), below.places)
        raise Refused(f"{node.kind}, behind which nobody knows which event a row is of", node)

    def _leaf(self, node: Node) -> _Carried:
        if not {*PLACE} <= {one.name for one in node.output}:
            return _Carried(node, None)
        return self._with_places(node, F.array(F.struct(*PLACE)))

    def _join(self, node: Node) -> _Carried:
        kind = str(node.java.joinType().sql())
        if kind in _LEFT_ALONE:  # what is only asked of the right side, no row is of
            found = self.carry(node.child)
            joined = self._with_children(node, [found.node, node.children[1]])
            return _Carried(joined, found.places)
        sides = [self.carry(side) for side in node.children]
        left, right = (side.places for side in sides)
        allowed = _SIDES.get(kind, (False, False))
        if any(there and not fits for there, fits in zip((left, right), allowed, strict=True)):
            raise Refused(f"a join of type {kind}, by which a row may be of no event", node)
        joined = self._with_children(node, [side.node for side in sides])
        if left is None or right is None:
            return _Carried(joined, left or right)
        return self._with_places(joined, F.concat(left.name, right.name))

    def _union(self, node: Node) -> _Carried:
        """Branches have the columns of a union by their order: so the places come last."""
        branches = []
        for branch in node.children:
            carried = self.carry(branch)
            if carried.places is None:
                raise Refused("a branch of a UNION reads no events", branch)
            branches.append(self._project([*branch.output, carried.places], carried.node))
        union = self._with_children(node, branches)
        return _Carried(union, union.output[-1])

    def _made(self, node: Node) -> _Carried:
        """What is computed of what is still there; an aggregation's counts are not."""
        below = self.carry(node.child)
        if below.places is None:
            return _Carried(self._with_children(node, [below.node]), None)
        there = _ids(below.node)
        kept = [
            one
            for one in node.made
            if one.attributes <= there
            and not any(part.kind == "AggregateExpression" for part in one.walk())
        ]
        return _Carried(self._project([*kept, below.places], below.node), below.places)

    def _expand(self, node: Node, below: _Carried, places: Expression) -> _Carried:
        """An event once for each window that it is in."""
        projections = [
            self._sequence([*sequence(one), places.java])
            for one in sequence(node.java.projections())
        ]
        output = self._sequence([*(one.java for one in node.output), places.java])
        logical = self._logical
        expanded = logical.Expand(self._sequence(projections), output, below.node.java)
        return _Carried(Node(expanded), places)

    def _with_places(self, node: Node, places: Any) -> _Carried:
        name = f"{_PLACES}_{next(self._numbers)}"
        frame = frame_of(self._session, node.java).select("*", places.alias(name))
        found = Node(analysed_plan(frame))
        return _Carried(found, found.output[-1])

    def _project(self, made: Iterable[Expression], below: Node) -> Node:
        found = self._sequence([one.java for one in made])
        return Node(self._logical.Project(found, below.java))

    def _with_children(self, node: Node, children: Iterable[Node]) -> Node:
        found = self._sequence([child.java for child in children])
        return Node(node.java.withNewChildren(found))

    def _sequence(self, items: list[Any]) -> Any:
        return scala_sequence(self._context, items)

    @property
    def _logical(self) -> Any:
        return jvm(self._context).org.apache.spark.sql.catalyst.plans.logical


def _refuse_queries_within(node: Node) -> None:
    """Which events a query within an expression has looked at, the row doesn't say."""
    for expression in node.expressions:
        for part in expression.walk():
            if part.kind in ("ScalarSubquery", "Exists", "ListQuery", "InSubquery"):
                raise Refused("a query within an expression", part)


def _ids(node: Node) -> frozenset[int]:
    return frozenset(one.id for one in node.output)


def _leaves(plan: Node) -> list[Node]:
    return [node for node in plan.walk() if not node.children]
