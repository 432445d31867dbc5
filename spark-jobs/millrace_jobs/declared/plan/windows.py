"""The window by which an aggregation groups: its numbers, and whether it ends by the watermark.

Spark writes ``window(time, …)`` as arithmetic: its start is the time less a remainder.
"""

from collections.abc import Iterator

from millrace_jobs.declared.plan.refused import Refused
from millrace_jobs.declared.plan.tree import Expression, Node, is_clocked, trace
from millrace_jobs.output import Window

SECOND = 1_000_000  # Spark counts microseconds
SESSION = "spark.sessionWindow"  # in a column's metadata
_WRAPPED = ("KnownNullable", "PreciseTimestampConversion", "Cast")


def window_of(aggregate: Node, event_time: str) -> tuple[Expression, Window]:
    """The grouping that is the window, and how long it is.

    Args:
        event_time: the column's name, to be told.

    Raises Refused where there is none, where branches of a union have different ones, where it
    isn't of whole seconds, or where its state would stay for ever.
    """
    for grouping in aggregate.groupings:
        sources = list(trace(aggregate.child, grouping))
        found = [_numbers(source) for _, source in sources]
        if not any(found):
            continue
        if len({*found}) > 1:
            raise Refused("its windows differ between the branches of a UNION", grouping)
        for node, source in sources:
            _require_watermark(node, source, event_time)
        assert found[0]
        return grouping, _in_seconds(found[0], grouping)
    if any(
        SESSION in one.java.metadata().json() for one in aggregate.groupings if one.is_attribute
    ):
        raise Refused(
            "session_window grows as events come, so its rows would have to be taken back; make"
            " sessions of slots: docs/your-own-job.md#sessions",
            aggregate,
        )
    raise Refused(f"its rows aren't grouped by window({event_time}, …)", aggregate)


def _numbers(source: Expression) -> tuple[int, int, int] | None:
    """Length, slide and offset in microseconds; None for what is no window."""
    if source.kind != "CreateNamedStruct" or len(source.children) != 4:
        return None
    _, start, _, end = source.children
    remainder = next((one for one in start.walk() if one.kind == "Remainder"), None)
    if remainder is None:
        return None
    slide, offset = _number(remainder.children[1]), _number(remainder.children[0].children[1])
    end = _unwrapped(end)
    if slide is None or offset is None or end.kind != "Add":
        return None
    length = _number(end.children[1])
    return None if length is None else (length, slide, offset)


def _number(one: Expression) -> int | None:
    literal = _unwrapped(one)
    return int(literal.java.value()) if literal.kind == "Literal" else None


def _unwrapped(one: Expression) -> Expression:
    while one.kind in _WRAPPED:
        one = one.children[0]
    return one


def _require_watermark(node: Node, source: Expression, event_time: str) -> None:
    """A window over anything but the event's own time is never known to be over."""
    for below, time in times_of(node, source):
        if not (time.is_attribute and below.kind == "Project" and is_clocked(below, time.id)):
            what = time.name if time.is_attribute else time.sql
            raise Refused(
                f"its window is over {what}, of which nobody knows when it is over, so state would"
                f" be kept for ever; use window({event_time}, …). A day of another time zone is"
                f" window({event_time}, '1 day', '1 day', '5 hours') where it begins at 05:00 UTC,"
                " whatever the season",
                source,
            )


def times_of(node: Node, source: Expression) -> Iterator[tuple[Node, Expression]]:
    """What a window is over, followed to where it comes from."""
    for one in source.walk():
        if one.kind == "PreciseTimestampConversion" and one.type == "bigint":
            yield from trace(node, one.children[0])
            return


def _in_seconds(numbers: tuple[int, int, int], at: Expression) -> Window:
    if any(number % SECOND for number in numbers):
        raise Refused("its window isn't of whole seconds", at)
    length, slide, offset = (number // SECOND for number in numbers)
    return Window(length, slide, offset % slide)
