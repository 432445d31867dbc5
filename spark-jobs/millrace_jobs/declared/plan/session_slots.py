"""Rows that are slots of sessions: what a session has of each column, read off the plan.

No two events in a slot are further apart than the slot is long. So where slots are no longer than
the gap that ends a session, each slot is in one session, and sessions are runs of slots: whoever
reads them merges them, in any order and however late an event came, and no job keeps sessions.
"""

from collections.abc import Collection, Mapping

from millrace_jobs.declared.plan.refused import Refused
from millrace_jobs.declared.plan.tree import Expression
from millrace_jobs.output import Sessions, Window
from millrace_jobs.settings import DeclaredSettings

# What a session has of its slots' values, by the function that made them.
MERGES = {
    "count": "sum",
    "count_if": "sum",
    "sum": "sum",
    "min": "min",
    "max": "max",
    "min_by": "first",
    "max_by": "last",
}
MOMENTS = {"min": "start", "max": "end"}  # of the event time
# What an answer says of each session beside the job's columns; see insight-api's `sessions`.
SAID = ("start", "end", "seconds", "open", "bounced", "complete")


def sessions(
    key: Collection[str],
    values: Mapping[str, str],
    computed: Mapping[str, Expression],
    event_time: str,
    window: Window,
    settings: DeclaredSettings,
) -> Sessions | None:
    """None for a job without a gap. Raises Refused for columns that runs of slots can't have.

    Args:
        values: value column → Spark's type.
        computed: value column → its expression in the aggregation.
    """
    gap, pages = settings.session_gap_seconds, settings.session_pages
    if not gap:
        return None
    if window.length > gap or not window.is_plain:
        raise Refused(
            f"its windows of {window.name} are no slots of sessions: they must be no longer than"
            f" session_gap_seconds, {gap}, or one could hold the end of a session and the start of"
            " the next, and follow each other; make the window as long as the gap"
        )
    merges = {name: _merge(computed.get(name), event_time) for name in values}
    if unknown := [name for name, merge in merges.items() if merge is None]:
        raise Refused(
            f"{', '.join(unknown)} can't be merged from slot to slot; with"
            f" session_gap_seconds a value is one of {', '.join(MERGES)}, the last two by"
            f" {event_time} or struct({event_time}, …)"
        )
    found = {name: merge for name, merge in merges.items() if merge}
    for moment, function in (("start", "min"), ("end", "max")):
        if list(found.values()).count(moment) != 1:
            raise Refused(f"sessions need {function}({event_time}) as one column")
    if found.get(pages) != "sum":
        raise Refused(f"session_pages {pages!r} is no count or sum among its columns")
    moments = {name for name, merge in found.items() if merge in MOMENTS.values()}
    if taken := [name for name in (*key, *values) if name in SAID and name not in moments]:
        raise Refused(f"{', '.join(taken)} is said of every session; rename the column")
    return Sessions(gap, pages, found)


def _merge(expression: Expression | None, event_time: str) -> str | None:
    if expression is None or expression.kind != "AggregateExpression":
        return None
    function = Expression(expression.java.aggregateFunction())
    name, arguments = function.function, function.children
    merge = MERGES.get(name)
    if merge == "sum" and not expression.java.isDistinct():
        return merge
    if merge in (None, "sum") or expression.java.filter().isDefined():
        return None
    if name in MOMENTS:
        return MOMENTS[name] if _is(arguments[0], event_time) else merge
    order = arguments[1]
    if order.kind == "CreateNamedStruct":
        order = order.children[1]  # the first name's value
    return merge if _is(order, event_time) else None


def _is(expression: Expression, column: str) -> bool:
    return expression.is_attribute and expression.name == column
