"""Spark's analysed plan as a typed tree, in which common table expressions stand where used.

Nodes and expressions wrap objects of the JVM, and ask them when somebody wants to know: each answer
costs a call. An attribute is told by its number; names may come twice.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame

from millrace_jobs.declared.loader import Place
from millrace_jobs.spark_internals import analysed_plan, java_session, jvm, scala_object
from millrace_jobs.transforms.watermark import DELAY

ATTRIBUTE, ALIAS = "AttributeReference", "Alias"
_NUMBERS = re.compile(r"#\d+L?")
_ANALYSIS = "org.apache.spark.sql.catalyst.analysis"
# What is left of them once a plan is analysed has no meaning.
_NAMES_ONLY = ("EliminateSubqueryAliases", "EliminateView")


@dataclass(frozen=True, eq=False)
class Expression:
    java: Any

    @cached_property
    def kind(self) -> str:
        """The class: ``Alias``, ``Add``, …"""
        return str(self.java.getClass().getSimpleName())

    @cached_property
    def children(self) -> tuple["Expression", ...]:
        return tuple(map(Expression, sequence(self.java.children())))

    def walk(self) -> Iterator["Expression"]:
        yield self
        for child in self.children:
            yield from child.walk()

    @property
    def is_attribute(self) -> bool:
        return self.kind == ATTRIBUTE

    @cached_property
    def id(self) -> int:
        """Of an attribute, or of what makes one."""
        return int(self.java.exprId().id())

    @property
    def name(self) -> str:
        return str(self.java.name())

    @property
    def source(self) -> "Expression":
        """What an alias names; anything else is its own source."""
        return self.children[0] if self.kind == ALIAS else self

    @property
    def type(self) -> str:
        return str(self.java.dataType().simpleString())

    @property
    def is_watermarked(self) -> bool:
        return bool(self.java.metadata().contains(DELAY))

    @cached_property
    def attributes(self) -> frozenset[int]:
        """Numbers of those that it is made of."""
        found = sequence(self.java.references().toSeq())
        return frozenset(int(one.exprId().id()) for one in found)

    @property
    def is_deterministic(self) -> bool:
        return bool(self.java.deterministic())

    @property
    def function(self) -> str:
        """The name of a function as a query has it."""
        return str(self.java.prettyName())

    @property
    def sql(self) -> str:
        return str(self.java.sql())

    def equals(self, other: "Expression") -> bool:
        """Whether both always give the same."""
        return bool(self.java.semanticEquals(other.java))

    @property
    def place(self) -> Place | None:
        """Its own, or that of the first thing in it that has one."""
        places = (_place(one.java.origin()) for one in self.walk())
        return next(filter(None, places), None)


@dataclass(frozen=True, eq=False)
class Node:
    java: Any

    @cached_property
    def kind(self) -> str:
        """``Project``, ``Aggregate``, …"""
        return str(self.java.nodeName())

    @cached_property
    def children(self) -> tuple["Node", ...]:
        return tuple(map(Node, sequence(self.java.children())))

    @property
    def child(self) -> "Node":
        return self.children[0]

    def walk(self) -> Iterator["Node"]:
        """This one first; not into queries within expressions."""
        yield self
        for child in self.children:
            yield from child.walk()

    def all(self, kind: str) -> list["Node"]:
        return [node for node in self.walk() if node.kind == kind]

    @cached_property
    def output(self) -> tuple[Expression, ...]:
        return tuple(map(Expression, sequence(self.java.output())))

    @cached_property
    def references(self) -> frozenset[int]:
        """Numbers of the attributes that its expressions are made of."""
        found = sequence(self.java.references().toSeq())
        return frozenset(int(one.exprId().id()) for one in found)

    @property
    def expressions(self) -> Iterator[Expression]:
        return map(Expression, sequence(self.java.expressions()))

    @property
    def condition(self) -> Expression:
        """Of a filter."""
        return Expression(self.java.condition())

    @property
    def keys(self) -> list[Expression]:
        """Of what keeps one of events that are the same in these."""
        return list(map(Expression, sequence(self.java.keys())))

    @property
    def groupings(self) -> list[Expression]:
        """Of an aggregation."""
        return list(map(Expression, sequence(self.java.groupingExpressions())))

    @cached_property
    def made(self) -> tuple[Expression, ...]:
        """What a projection or an aggregation makes its output of, in that order."""
        found = (
            self.java.projectList() if self.kind == "Project" else self.java.aggregateExpressions()
        )
        return tuple(map(Expression, sequence(found)))

    @property
    def is_streaming(self) -> bool:
        return bool(self.java.isStreaming())

    @property
    def place(self) -> Place | None:
        return _place(self.java.origin())

    def attribute(self, number: int) -> Expression | None:
        return next((one for one in self.output if one.id == number), None)

    def text(self) -> str:
        """As Spark prints the node, without what says that it is of a stream, and numbers
        that each analysis has anew."""
        return _NUMBERS.sub("", str(self.java.simpleString(1000)).removeprefix("~"))


def tree_of(frame: DataFrame) -> Node:
    """The frame's plan."""
    context = frame.sparkSession.sparkContext
    inline = jvm(context).org.apache.spark.sql.catalyst.optimizer.InlineCTE(True, False)
    plan = inline.apply(analysed_plan(frame))
    for rule in _NAMES_ONLY:
        plan = scala_object(context, f"{_ANALYSIS}.{rule}").apply(plan)
    return Node(plan)


def optimised(plan: Node, frame: DataFrame) -> Node:
    """The plan as Spark would run it: conditions are where they are used."""
    rules = java_session(frame.sparkSession).sessionState().optimizer()
    return Node(rules.execute(plan.java.clone()))


def trace(node: Node, expression: Expression) -> Iterator[tuple[Node, Expression]]:
    """What an attribute of the node's output is in the end, behind all renaming.

    A union has as many answers as branches, and its attributes' numbers are its first branch's: so
    this goes node by node. Each answer comes with the node whose output it is made of.
    """
    if not expression.is_attribute:
        yield node, expression
        return
    sources = list(_made_by(node, expression.id))
    if not sources:
        yield node, expression
    for below, source in sources:
        yield from trace(below, source)


def is_clocked(node: Node, number: int) -> bool:
    """Whether a node is where this attribute has got its watermark; see `behind_the_clock`."""
    made = next((one for one in node.made if one.id == number), None)
    if made is None or made.kind != ALIAS or not made.source.is_attribute:
        return False
    return made.is_watermarked and not made.source.is_watermarked


def _made_by(node: Node, number: int) -> Iterator[tuple[Node, Expression]]:
    """Of what a node makes this attribute; nothing where it begins."""
    at = next((n for n, one in enumerate(node.output) if one.id == number), None)
    if at is None:
        return
    if node.kind in ("Project", "Aggregate"):
        if not is_clocked(node, number):
            yield node.child, node.made[at].source
    elif node.kind == "Union":
        for child in node.children:
            yield child, child.output[at]
    elif node.kind == "Expand":
        for projection in sequence(node.java.projections()):
            yield node.child, Expression(projection.apply(at))
    else:
        for child in node.children:
            if found := child.attribute(number):
                yield child, found


def sequence(found: Any) -> list[Any]:
    """A sequence of Scala's as a list."""
    return [found.apply(index) for index in range(found.size())]


def _place(origin: Any) -> Place | None:
    """PySpark knows the call that made an expression, Spark's parser where it stands in a query."""
    if (called := origin.pysparkErrorContext()).isDefined():
        file, _, line = str(called.get()._2()).rpartition(":")
        return Place(int(line), file=Path(file).name) if line.isdigit() else None
    if origin.line().isDefined():
        return Place(int(origin.line().get()), int(origin.startPosition().get()))
    return None
