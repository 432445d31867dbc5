"""Finds tests whose outcome says how fast the machine is. Pure: source text in, findings out.

It follows what is read off a clock through the names, attributes and helpers of a file. A moment
may be compared with another one, which tells their order. What was added to a moment, or
subtracted from it, may be compared with nothing.
"""

import ast
from collections.abc import Iterator
from enum import IntEnum
from typing import NamedTuple

LEAST_SECONDS = 30.0

COMPARES = (
    "compares a duration of this machine: count work or calls, show the order of events, or move a"
    " clock by hand (tests/clock.py)"
)
IMPATIENT = (
    f"waits for less than {LEAST_SECONDS:g} s: use tests.waiting's soon or PATIENCE_SECONDS; that"
    " nothing is waited for is shown by what is still pending"
)
SLEEPS = (
    "sleeps, and expects something to have happened by then: wait for that with tests.waiting's"
    " soon, or move a clock by hand (tests/clock.py)"
)
BY_DEFAULT = "httpx waits for five seconds unless it is given a timeout: PATIENCE_SECONDS"
DEADLINE = "hypothesis is to have no deadline: it says how busy the machine is"

CLOCKS = {
    "monotonic",
    "perf_counter",
    "process_time",
    "thread_time",
    "time",
} | {f"{name}_ns" for name in ("monotonic", "perf_counter", "process_time", "thread_time", "time")}
# Whose result is of the kind of what they are given. All other functions', as len's, is not.
PASSING = {"abs", "float", "int", "list", "max", "min", "round", "set", "sorted", "sum", "tuple"}
PASSING |= {"mean", "median", "pairwise", "quantiles", "timestamp", "total_seconds", "values"}
ADDING = {"add", "append", "extend", "insert", "put"}
ORDERS = (ast.Lt, ast.LtE, ast.Gt, ast.GtE)

ASKING = {"get", "post", "put", "delete", "request", "stream", "Client", "AsyncClient"}
OF_HTTPX = {"timeout", "transport"}  # the latter calls an application, and no server
POLLS = {"wait", "create_connection"}  # in a loop, which goes on until something else is true
OF_OBJECTS = {"wait", "join", "result", "flush"}  # another one's function may have such a name
# Calls that wait → which argument says how long; each has it by the name `timeout`, too.
WAITING = {"wait": 0, "join": 0, "result": 0, "settimeout": 0, "timeout": 0, "flush": 0}
WAITING |= {"wait_for": 1, "wait_until": 1, "create_connection": 1, "Barrier": 2}
WAITING |= dict.fromkeys(
    ["acquire", "communicate", "describe_cluster", "get", "list_topics", "post", "urlopen"], 9
)
WAITING |= dict.fromkeys(["run", "call", "check_call", "check_output", "Client", "AsyncClient"], 9)


class Kind(IntEnum):
    """What is known of a value: nothing, a moment by a clock, or how long something took."""

    OTHER = 0
    MOMENT = 1
    DURATION = 2


class Finding(NamedTuple):
    line: int
    what: str


def findings(source: str) -> list[Finding]:
    tree = ast.parse(source)
    file = File(tree)
    found = {*file.comparisons(), *file.waits(), *file.sleeps(), *file.deadlines()}
    return sorted(found)


class File:
    """One file of tests, with what its names stand for."""

    def __init__(self, tree: ast.Module) -> None:
        self._tree = tree
        self._of_time = _imported(tree, "time")
        self._modules = _imported(tree)
        self._numbers = dict(_numbers(tree))
        self._parents = {
            child: node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)
        }
        # By scope and name: that of a function holds for those inside it, as closures need.
        self._kinds: dict[tuple[ast.AST | None, str], Kind] = {}
        while self._learn():
            pass

    def comparisons(self) -> Iterator[Finding]:
        for node in ast.walk(self._tree):
            if not isinstance(node, ast.Compare):
                continue
            sides = [node.left, *node.comparators]
            judged = any(isinstance(op, ORDERS) for op in node.ops) or any(map(_is_approx, sides))
            if judged and any(self._kind(side) == Kind.DURATION for side in sides):
                yield Finding(node.lineno, COMPARES)

    def waits(self) -> Iterator[Finding]:
        for node in self._calls():
            name, given = _last(node.func), {one.arg for one in node.keywords}
            if _root(node.func) == "httpx" and name in ASKING and not given & OF_HTTPX:
                yield Finding(node.lineno, BY_DEFAULT)
            if name not in WAITING or (name in POLLS and self._is_in_a_loop(node)):
                continue
            if name in OF_OBJECTS and _root(node.func) in self._modules:
                continue
            if "now" in given or (name in ("timeout", "wait_for") and self._is_moved):
                continue  # by a clock of the test's own
            limits = [one.value for one in node.keywords if one.arg == "timeout"]
            limits += node.args[WAITING[name] :][:1]
            if any(0 < self._number(limit) < LEAST_SECONDS for limit in limits):
                yield Finding(node.lineno, IMPATIENT)

    def sleeps(self) -> Iterator[Finding]:
        for node in self._calls():
            if _last(node.func) != "sleep" or not node.args or self._number(node.args[0]) == 0:
                continue
            root = _root(node.func)
            is_real = (
                root == "time"
                or root in self._of_time
                or (root == "asyncio" and not self._is_moved)
            )
            if is_real and not self._is_in_a_loop(node):
                yield Finding(node.lineno, SLEEPS)

    def deadlines(self) -> Iterator[Finding]:
        for node in self._calls():
            for keyword in node.keywords:
                if keyword.arg == "deadline" and self._number(keyword.value) > 0:
                    yield Finding(node.lineno, DEADLINE)

    @property
    def _is_moved(self) -> bool:
        """Whether its event loops are all `tests.clock.play`'s, in which a second takes none."""
        return not any(
            _root(node.func) == "asyncio" and _last(node.func) in ("run", "Runner")
            for node in self._calls()
        )

    def _calls(self) -> Iterator[ast.Call]:
        return (node for node in ast.walk(self._tree) if isinstance(node, ast.Call))

    def _is_in_a_loop(self, node: ast.AST) -> bool:
        """Of its own function: a poll."""
        while not isinstance(node := self._parents[node], (ast.Module, *FUNCTIONS)):
            if isinstance(node, (ast.While, ast.For, ast.AsyncFor)):
                return True
        return False

    # -- What is known of names

    def _learn(self) -> bool:
        """One more time over the file; whether something new was learned."""
        before = dict(self._kinds)
        for node in ast.walk(self._tree):
            match node:
                case ast.Assign():
                    for target in node.targets:
                        self._know(target, self._kind(node.value))
                case ast.AnnAssign(value=ast.expr() as value) | ast.NamedExpr(value=value):
                    self._know(node.target, self._kind(value))
                case ast.AugAssign():
                    self._know(node.target, self._kind(node.value))
                case ast.For() | ast.comprehension():
                    self._know(node.target, self._kind(node.iter))
                case ast.Return(value=ast.expr() as value):
                    self._know_function(node, self._kind(value))
                case ast.Call(func=ast.Attribute(attr=attr, value=value)) if attr in ADDING:
                    self._know(value, max(map(self._kind, node.args), default=Kind.OTHER))
                case _:
                    pass
        return self._kinds != before

    def _know(self, target: ast.expr, kind: Kind) -> None:
        if kind == Kind.OTHER:
            return
        if isinstance(target, (ast.Tuple, ast.List)):
            for part in target.elts:
                self._know(part, kind)
        elif key := self._key(target):
            self._kinds[key] = max(kind, self._kinds.get(key, Kind.OTHER))

    def _know_function(self, node: ast.Return, kind: Kind) -> None:
        function = self._function_of(node)
        if kind != Kind.OTHER and isinstance(function, FUNCTIONS[:2]):
            key = (self._function_of(function), f"{function.name}()")
            self._kinds[key] = max(kind, self._kinds.get(key, Kind.OTHER))

    def _key(self, target: ast.expr) -> tuple[ast.AST | None, str] | None:
        """The innermost name: `told` of `told[0].at`; an attribute is one, of the whole file."""
        while not isinstance(target, (ast.Name, ast.Attribute)):
            if isinstance(target, (ast.Subscript, ast.Starred)):
                target = target.value
            elif isinstance(target, ast.Call):
                target = target.func
            else:
                return None
        if isinstance(target, ast.Attribute):
            return None, f".{target.attr}"
        return self._scope_of(target, target.id), target.id

    def _scope_of(self, node: ast.AST, name: str) -> ast.AST | None:
        """Where a name is known already: here, or in a function around it; else here."""
        here = scope = self._function_of(node)
        while scope is not None:
            if (scope, name) in self._kinds:
                return scope
            scope = self._function_of(scope)
        return scope if (None, name) in self._kinds else here

    def _function_of(self, node: ast.AST) -> ast.AST | None:
        """None at the top of the file; a lambda's names are those of the function around it."""
        while (node := self._parents.get(node)) is not None:  # type: ignore[assignment]
            if isinstance(node, FUNCTIONS[:2]):
                return node
        return None

    def _kind(self, node: ast.AST) -> Kind:
        match node:
            case ast.Name():
                return self._kinds.get((self._scope_of(node, node.id), node.id), Kind.OTHER)
            case ast.Attribute():
                own = self._kinds.get((None, f".{node.attr}"), Kind.OTHER)
                return max(own, self._kind(node.value))
            case ast.Call():
                return self._kind_of_call(node)
            case ast.BinOp(op=ast.Add() | ast.Sub()):
                moved = max(self._kind(node.left), self._kind(node.right)) != Kind.OTHER
                return Kind.DURATION if moved else Kind.OTHER
            case ast.Lambda():
                return Kind.OTHER
            case ast.Subscript():
                return self._kind(node.value)
            case ast.DictComp():
                return max(self._kind(node.key), self._kind(node.value))
            case ast.ListComp() | ast.SetComp() | ast.GeneratorExp():
                return self._kind(node.elt)
            case ast.Compare():
                return Kind.OTHER
            case ast.IfExp():
                return max(self._kind(node.body), self._kind(node.orelse))
            case _:
                return max(map(self._kind, ast.iter_child_nodes(node)), default=Kind.OTHER)

    def _kind_of_call(self, node: ast.Call) -> Kind:
        name = _last(node.func)
        if self._is_clock(node):
            return Kind.MOMENT
        if name in PASSING or name == "approx":
            receiver = [node.func.value] if isinstance(node.func, ast.Attribute) else []
            return max(map(self._kind, [*receiver, *node.args]), default=Kind.OTHER)
        if isinstance(node.func, ast.Name):
            called = f"{name}()"
            return self._kinds.get((self._scope_of(node, called), called), Kind.OTHER)
        return Kind.OTHER

    def _is_clock(self, node: ast.Call) -> bool:
        name = _last(node.func)
        if isinstance(node.func, ast.Name):
            return name in self._of_time and self._of_time[name] in CLOCKS
        if name in ("now", "utcnow"):
            return "datetime" in ast.unparse(node.func)
        return name in CLOCKS and (name != "time" or not node.args)

    def _number(self, node: ast.AST) -> float:
        """A number that is written in the file, or 0."""
        match node:
            case ast.Constant(value=int() | float() as value):
                return float(value)
            case ast.Name():
                return self._numbers.get(node.id, 0.0)
            case ast.BinOp(op=ast.Mult()):
                return self._number(node.left) * self._number(node.right)
            case ast.BinOp(op=ast.Div()):
                return self._number(node.left) / (self._number(node.right) or 1.0)
            case _:
                return 0.0


FUNCTIONS = (ast.FunctionDef, ast.AsyncFunctionDef, ast.Lambda)


def _last(function: ast.expr) -> str:
    match function:
        case ast.Name(id=name) | ast.Attribute(attr=name):
            return name
        case _:
            return ""


def _root(function: ast.expr) -> str:
    while isinstance(function, ast.Attribute):
        function = function.value
    return function.id if isinstance(function, ast.Name) else ""


def _is_approx(node: ast.expr) -> bool:
    return isinstance(node, ast.Call) and _last(node.func) == "approx"


def _imported(tree: ast.Module, module: str | None = None) -> dict[str, str]:
    """Name here → name there, of what a file has from a module, or from any."""
    return {
        one.asname or one.name: one.name
        for node in ast.walk(tree)
        if isinstance(node, ast.ImportFrom) and module in (None, node.module)
        for one in node.names
    }


def _numbers(tree: ast.Module) -> Iterator[tuple[str, float]]:
    """Names that stand for numbers all over the file."""
    for node in ast.walk(tree):
        match node:
            case ast.Assign(
                targets=[ast.Name(id=name)], value=ast.Constant(value=int() | float() as n)
            ):
                yield name, float(n)
            case ast.Assign(targets=[ast.Tuple(elts=names)], value=ast.Tuple(elts=values)):
                for one, value in zip(names, values, strict=False):
                    match one, value:
                        case ast.Name(id=name), ast.Constant(value=int() | float() as n):
                            yield name, float(n)
                        case _:
                            pass
            case _:
                pass
