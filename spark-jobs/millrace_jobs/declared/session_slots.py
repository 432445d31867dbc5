"""Rows that are slots of sessions: what a session has of each column, read off the plan.

No two events in a slot are further apart than the slot is long. So where slots are no longer than
the gap that ends a session, each slot is in one session, and sessions are runs of slots: whoever
reads them merges them, in any order and however late an event came, and no job keeps sessions.
"""

from collections.abc import Collection, Mapping
from typing import Any

from millrace_jobs.declared.loader import InvalidJob
from millrace_jobs.output import Sessions
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
    job: str,
    key: Collection[str],
    values: Mapping[str, str],
    computed: Mapping[str, Any],
    event_time: str,
    settings: DeclaredSettings,
) -> Sessions | None:
    """None for a job without a gap. Raises InvalidJob for columns that runs of slots can't have.

    Args:
        values: value column → Spark's type.
        computed: value column → its expression in the aggregation.
    """
    gap, pages = settings.session_gap_seconds, settings.session_pages
    if not gap:
        return None
    if settings.window_seconds > gap:
        raise InvalidJob(
            f"job {job}: window_seconds {settings.window_seconds} is longer than"
            f" session_gap_seconds {gap}, so a slot could hold the end of one session and the start"
            " of the next; make the window as long as the gap"
        )
    merges = {name: _merge(computed.get(name), event_time) for name in values}
    if unknown := [name for name, merge in merges.items() if merge is None]:
        raise InvalidJob(
            f"job {job}: {', '.join(unknown)} can't be merged from slot to slot; with"
            f" session_gap_seconds a value is one of {', '.join(MERGES)}, the last two by"
            f" {event_time} or struct({event_time}, …)"
        )
    found = {name: merge for name, merge in merges.items() if merge}
    for moment, function in (("start", "min"), ("end", "max")):
        if list(found.values()).count(moment) != 1:
            raise InvalidJob(f"job {job}: sessions need {function}({event_time}) as one column")
    if found.get(pages) != "sum":
        raise InvalidJob(f"job {job}: session_pages {pages!r} is no count or sum among its columns")
    moments = {name for name, merge in found.items() if merge in MOMENTS.values()}
    if taken := [name for name in (*key, *values) if name in SAID and name not in moments]:
        raise InvalidJob(
            f"job {job}: {', '.join(taken)} is said of every session; rename the column"
        )
    return Sessions(gap, pages, found)


def _merge(expression: Any, event_time: str) -> str | None:
    if expression is None or expression.nodeName() != "AggregateExpression":
        return None
    function = expression.aggregateFunction()
    name, arguments = function.prettyName(), function.children()
    merge = MERGES.get(name)
    if merge == "sum" and not expression.isDistinct():
        return merge
    if merge in (None, "sum") or expression.filter().isDefined():
        return None
    if name in MOMENTS:
        return MOMENTS[name] if _is(arguments.apply(0), event_time) else merge
    order = arguments.apply(1)
    if order.nodeName() == "CreateNamedStruct":
        order = order.children().apply(1)  # the first name's value
    return merge if _is(order, event_time) else None


def _is(expression: Any, column: str) -> bool:
    return expression.nodeName() == "AttributeReference" and bool(expression.name() == column)
