"""Which events the rows of a plan are of: the same plan without its counting.

A plan filters, renames and joins events before it counts them. The places of the events are led
through all of that beside its columns, up to the aggregation, which is left out. What is left are
the columns of each row's key, once for each event that the row is of. Only what keeps events apart
is led through; for anything else nobody could say which event a row is of, and it is refused.

The plan is of a job that can run: what `describe` refuses isn't looked for again. So two streams
have an inner join, each branch of a union reads a stream, and what is filtered above the
aggregation are keys.
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
# Joins by which rows of the left side are there or not; none is of what the right one has.
_LEFT_ALONE = {"LEFT SEMI", "LEFT ANTI"}


def origins(rows: DataFrame, *, with_copies: bool = False) -> DataFrame:
    """What is left of a frame's columns, and `PLACE` of an event: once for each of a row's events,
    or for each pair that a join makes.

    Args:
        rows: of events of archives.
        with_copies: also of the events that de-duplication drops.

    Raises Refused where it can't be said which events a row is of.
    """
    carried = _Carrier(rows, with_copies).carry(tree_of(rows))
    found = frame_of(rows.sparkSession, carried.node.java)
    names = [one.name for one in carried.node.output if not one.name.startswith(_PLACES)]
    place = F.explode(carried.places.name).alias(_PLACES)
    return found.select(*names, place).select(*names, *(f"{_PLACES}.{name}" for name in PLACE))


def fields_used(optimised: Node, fields: Iterable[str]) -> list[str]:
    """Those of the events' fields that a plan does something with.

    Args:
        optimised: in which columns that nobody asks for are left out at once.
    """
    nodes = list(optimised.walk())
    read = {one.id: one.name for node in nodes if not node.children for one in node.output}
    numbers = {number for node in nodes if node.children for number in node.references}
    used = {name for number, name in read.items() if number in numbers}
    return [name for name in fields if name in used]


@dataclass(frozen=True)
class _Carried:
    """A node, and that of its columns which has the places."""

    node: Node
    places: Expression


class _Carrier:
    """Leads places through one plan."""

    def __init__(self, rows: DataFrame, with_copies: bool) -> None:
        self._session = rows.sparkSession
        self._context = self._session.sparkContext
        self._with_copies = with_copies
        self._numbers = count()  # each column of places has a name of its own

    def carry(self, node: Node) -> _Carried:
        """Of a node that reads events. Raises Refused."""
        _refuse_queries_within(node)
        if not node.children:
            return self._with_places(node, F.array(F.struct(*PLACE)))
        if node.kind == "Join":
            return self._join(node)
        if node.kind == "Union":
            return self._union(node)
        below = self.carry(node.child)
        if node.kind in ("Project", "Aggregate"):
            return self._made(node, below)
        if node.kind == "Expand":
            return self._expand(node, below)
        if node.kind == _COPIES and self._with_copies:
            return below
        if node.kind in _PASSING:
            return _Carried(self._with_children(node, [below.node]), below.places)
        raise Refused(f"{node.kind}, behind which nobody knows which event a row is of", node)

    def _join(self, node: Node) -> _Carried:
        """Of two streams, or of one and of rows that are constant."""
        alone = str(node.java.joinType().sql()) in _LEFT_ALONE
        sources = [side for side in node.children[: 1 if alone else 2] if _reads_events(side)]
        events = {side: self.carry(side) for side in sources}
        sides = [events[side].node if side in events else side for side in node.children]
        joined = self._with_children(node, sides)
        places = [side.places for side in events.values()]
        if len(places) == 1:
            return _Carried(joined, *places)
        return self._with_places(joined, F.concat(*(one.name for one in places)))

    def _union(self, node: Node) -> _Carried:
        """Branches have the columns of a union by their order: so the places come last."""
        branches = []
        for branch in node.children:
            carried = self.carry(branch)
            branches.append(self._project([*branch.output, carried.places], carried.node))
        union = self._with_children(node, branches)
        return _Carried(union, union.output[-1])

    def _made(self, node: Node, below: _Carried) -> _Carried:
        """What is computed of what is still there; an aggregation's counts are not."""
        there = {one.id for one in below.node.output}
        kept = [
            one
            for one in node.made
            if one.attributes <= there
            and not any(part.kind == "AggregateExpression" for part in one.walk())
        ]
        return _Carried(self._project([*kept, below.places], below.node), below.places)

    def _expand(self, node: Node, below: _Carried) -> _Carried:
        """An event once for each window that it is in."""
        places = below.places
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


def _reads_events(node: Node) -> bool:
    leaves = (below for below in node.walk() if not below.children)
    return any({*PLACE} <= {one.name for one in leaf.output} for leaf in leaves)


def _refuse_queries_within(node: Node) -> None:
    """Which events a query within an expression has looked at, the row doesn't say."""
    for expression in node.expressions:
        for part in expression.walk():
            if part.kind in ("ScalarSubquery", "Exists", "ListQuery", "InSubquery"):
                raise Refused("a query within an expression", part)
