"""Why a number is what it is: the events that a row was made of, held to what the API answers now.

An edge host finds the events in the archive, with the code of the version that runs, and counts the
row again of these alone; see millrace_jobs.recount.why. Here the row is asked for and compared.
"""

import time
from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any
from urllib.parse import parse_qsl

from millrace.audit.answers import TOP_PAGES, figures
from millrace.audit.declared import await_archives, require_rows, said_of
from millrace.audit.positions import Positions
from millrace.audit.second_look import LONGEST_ASKED, Described, by_name, differing, parsed
from millrace.audit.truth import SIZES
from millrace.cluster import dead_letters, kafka
from millrace.cluster.dead_letters import Counted
from millrace.cluster.hdfs import Hdfs
from millrace.cluster.insight_api import InsightApi
from millrace.cluster.job_gateway import Gateway
from millrace.cluster.skips import Skipped, skipped
from millrace.common.errors import OperatorError
from millrace.common.tables import iso
from millrace.plan import Plan

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
INSTANT = timedelta(milliseconds=1)
LONGEST_SESSION = timedelta(days=1)  # of which the API has all
ENDS = ("start", "end")  # of a session, as the API has it
SKIPPED = "skipped"
# What a session has of its slots' values, the earliest first; see millrace_api.sessions.
JOINED: dict[str, Callable[[list[Any]], Any]] = {
    "sum": sum,
    "min": min,
    "max": max,
    "start": min,
    "end": max,
    "first": lambda values: values[0],
    "last": lambda values: values[-1],
}

Row = Mapping[str, Any]


@dataclass(frozen=True)
class Asked:
    """A row as the API has it, and how the archive is asked for it.

    Attributes:
        start, end: the windows that it is of start from here to before there.
        key: column → value, as text.
        row: the API's; None where it has none.
        differences: what is counted again, compared with that row: one text for each column.
    """

    start: datetime
    end: datetime
    key: dict[str, str]
    row: Row | None
    differences: Callable[[list[Row]], list[str]]
    notes: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Why:
    """``found`` is the edge host's answer; ``letters``: reason → records that were none of the
    stream's events, and that Kafka took while it took these."""

    job: str
    asked: Asked
    found: dict[str, Any]
    differences: list[str]
    letters: Mapping[str, int]
    notes: list[str]

    @property
    def adds_up(self) -> bool:
        return not self.differences


def key_of(text: str) -> dict[str, str]:
    """Columns and their values, as in the API's query. Raises OperatorError."""
    try:
        pairs = parse_qsl(text, keep_blank_values=True, strict_parsing=True) if text else []
    except ValueError:
        pairs = []
    key = dict(pairs)
    if len(key) != len(pairs) or (text and not pairs):
        raise OperatorError(
            f"'{text}' is no key: it is NAME=VALUE, or several with & between them, each once",
            "as the API takes it: `status=404`, `campaign=spring&page=%2Fa`",
        )
    return key


def why(
    plan: Plan, job: str, key: dict[str, str], moment: datetime, limit: int, wait: float
) -> Why:
    """The events of one row.

    Args:
        moment: the start of the row's window; of a session any moment of it.
        limit: how many events are listed.
        wait: seconds that the archive, and the job, are given to take in all that is in Kafka.

    Raises OperatorError when there is no such row, or nobody can say what it is made of.
    """
    require_rows(plan, job)
    deadline = time.monotonic() + wait
    ends = await_archives(plan, job, wait)
    Positions(plan, Hdfs(plan)).wait_for(job, ends, deadline)
    asked = (_traffic if job == kafka.JOB else _declared)(plan, job, key, moment)
    question = {
        "start": _naive(asked.start),
        "end": _naive(asked.end),
        "key": asked.key,
        "limit": limit,
    }
    found = Gateway(plan).why(job, question)
    if "error" in found:
        raise _not_explained(job, found)
    if asked.row is None and not found["count"]:
        raise _no_row(plan, job, asked)
    found["apart"] = with_reasons(found["apart"], skipped(plan, [job]))
    return Why(
        job,
        asked,
        found,
        asked.differences(found["rows"]),
        letters(plan, found["received"]),
        [*asked.notes, *found["notes"]],
    )


def with_reasons(
    apart: Iterable[dict[str, Any]], ranges: Iterable[Skipped]
) -> list[dict[str, Any]]:
    """What was skipped, with what was said of it."""
    known = list(ranges)

    def reason(event: Row) -> str:
        place = event["topic"], event["partition"]
        said = [
            one.reason
            for one in known
            if (one.topic, one.partition) == place and one.start <= event["offset"] < one.end
        ]
        return f"{SKIPPED}: {said[0]}" if event["reason"] == SKIPPED and said else event["reason"]

    return [event | {"reason": reason(event)} for event in apart]


def letters(plan: Plan, received: list[str] | None) -> Counter[str]:
    """Dead letters have no time of their own that could be relied on, and no key."""
    if received is None:
        return Counter()
    first, last = map(datetime.fromisoformat, received)
    days = [first.date() + timedelta(days=n) for n in range((last.date() - first.date()).days + 1)]
    return letters_between(dead_letters.counted(plan, days), first, last, plan.jobs)


def letters_between(
    counted: Iterable[Counted], first: datetime, last: datetime, jobs: Iterable[str]
) -> Counter[str]:
    """By reason; a job's own, which it begins with, are its quarantined records."""
    own = tuple(f"{job}: " for job in jobs)
    found = Counter[str]()
    for one in counted:
        is_meanwhile = first - timedelta(minutes=1) < one.minute <= last
        if is_meanwhile and not one.reason.startswith(own):
            found[one.reason] += one.records
    return found


# -- Rows of the API


def _traffic(plan: Plan, job: str, key: dict[str, str], moment: datetime) -> Asked:
    size = key.get("window", "")
    if size not in SIZES or key.keys() - {"window", "url"} or ("url" in key and size != "1h"):
        raise OperatorError(
            f"traffic has no row with the key {key or 'that is empty'}",
            f"a key is window={' or window='.join(SIZES)}, or window=1h&url=/a for a page's views",
        )
    length = timedelta(seconds=SIZES[size])
    _require_start(moment, length, timedelta(0))
    end = moment + length
    span = {"from": iso(moment), "to": iso(end)}
    api = InsightApi(plan)
    windows = api.get("/v1/traffic", window=size, **span)["windows"]
    row = windows[0] if windows else None
    if "url" not in key:
        return Asked(
            moment, end, key, row, lambda counted: traffic_differences(row, counted), _open(row)
        )
    pages = api.get("/v1/pages/top", k=TOP_PAGES, **span)
    views = {page["url"]: page["page_views"] for page in pages["pages"]}
    if key["url"] not in views:
        raise OperatorError(
            f"the API has no count of its own for the page {key['url']} in the hour of {moment}",
            f"`millrace api /v1/pages/top` has the {TOP_PAGES} most viewed ones, by their paths",
        )
    page = {"url": key["url"], "page_views": views[key["url"]], "error": pages["error"]}
    return Asked(
        moment, end, key, page, lambda counted: page_differences(page, counted), _open(row)
    )


def _declared(plan: Plan, job: str, key: dict[str, str], moment: datetime) -> Asked:
    said = said_of(plan, job)
    described = Described.of(said)
    if key.keys() != {*described.key}:
        raise OperatorError(
            f"a row of {job} has the key {', '.join(described.key) or 'of nothing'}, not"
            f" {', '.join(key) or 'of nothing'}",
            "say all of its columns: `" + "&".join(f"{name}=…" for name in described.key) + "`",
        )
    if said["sessions"]:
        return _session(plan, described, said, key, moment)
    _require_start(moment, described.slide, timedelta(seconds=said["offset_seconds"]))
    span = {"from": iso(moment), "to": iso(moment + INSTANT)}
    rows = InsightApi(plan).get(f"/v1/jobs/{job}", limit=1, **span, **key)["rows"]
    row = rows[0] if rows else None
    return Asked(
        moment,
        moment + INSTANT,
        key,
        row,
        lambda counted: declared_differences(described, row, counted),
        _open(row),
    )


def _session(
    plan: Plan, described: Described, said: Row, key: dict[str, str], moment: datetime
) -> Asked:
    last = moment + min(LONGEST_SESSION, described.slide * LONGEST_ASKED)
    span = {"from": iso(moment), "to": iso(last)}
    listed = InsightApi(plan).get(f"/v1/jobs/{described.job}/sessions", **span, **key)["sessions"]
    found = [one for one in listed if datetime.fromisoformat(one["start"]) <= moment]
    if not found:
        raise OperatorError(
            f"{described.job} has no session of that key at {moment}",
            f"`millrace api /v1/jobs/{described.job}/sessions` lists the key's: ask for one by its"
            " start",
        )
    session = found[-1]
    if not session["complete"]:
        raise OperatorError(
            f"the session began more than a day before {moment}, and the API has a part of it",
            "ask for a moment of its first day",
        )
    first, last = (_floor(datetime.fromisoformat(session[end]), described.slide) for end in ENDS)
    merges = said["sessions"]["merges"]
    notes = ["the session is open: more events may belong to it"] if session["open"] else []
    return Asked(
        first,
        last + described.slide,
        key,
        session,
        lambda counted: session_differences(described, merges, session, counted),
        notes,
    )


def traffic_differences(row: Row | None, counted: list[Row]) -> list[str]:
    stored = figures(dict(row)) if row else {}
    again = {name.removeprefix("status_"): value for row in counted for name, value in row.items()}
    return [
        f"{name} {again.get(name, 0)} ≠ {stored.get(name, 0)}"
        for name in stored or ["requests"]
        if again.get(name, 0) != stored.get(name, 0)
    ]


def page_differences(page: Row, counted: list[Row]) -> list[str]:
    """A page's number is too high by no more than its hour's error."""
    views = counted[0]["page_views"] if counted else 0
    if views <= page["page_views"] <= views + page["error"]:
        return []
    return [f"page_views {views} ≠ {page['page_views']}"]


def declared_differences(described: Described, row: Row | None, counted: list[Row]) -> list[str]:
    again, stored = by_name(described, counted), by_name(described, [row] if row else [])
    if again.keys() != stored.keys():
        return ["the API has no such row" if again else "no event makes this row"]
    return [text for name in again if (text := differing(described, again[name], stored[name]))]


def session_differences(
    described: Described, merges: Mapping[str, str], session: Row, counted: list[Row]
) -> list[str]:
    """Slots of one key are merged as their job says; facts of lookup tables no slot has."""
    if not counted:
        return ["no event makes this session"]
    slots = [parsed(described, slot) for slot in counted]
    merged = {
        name: _merged(merge, [slot[name] for slot in slots])
        for name, merge in merges.items()
        if name in slots[0]
    }
    answered = {name: session[merge if merge in ENDS else name] for name, merge in merges.items()}
    text = differing(described, merged, parsed(described, answered))
    return [text] if text else []


def _merged(merge: str, values: list[Any]) -> Any:
    """What is absent is neutral, but for what is of the first slot or the last one."""
    if merge in ("first", "last"):
        return JOINED[merge](values)
    there = [value for value in values if value is not None]
    return JOINED[merge](there) if there else None


# -- What can't be asked


def _require_start(moment: datetime, slide: timedelta, offset: timedelta) -> None:
    behind = (moment - EPOCH - offset) % slide
    if behind:
        raise OperatorError(
            f"no window starts at {iso(moment)}",
            f"one starts at {iso(moment - behind)}, the next at {iso(moment - behind + slide)}",
        )


def _no_row(plan: Plan, job: str, asked: Asked) -> OperatorError:
    settings = plan.spark.settings
    archives = {settings.archive_job(stream) for stream in settings.streams_of(job)}
    days = min(settings.job(archive).keep_days or 0 for archive in archives)
    kept = settings.job(job).keep_days
    rows = f"rows are kept for {kept} days, and " if kept else ""
    return OperatorError(
        f"{job} has no row with this key in the window of {iso(asked.start)}, and the archive has"
        " no event for it",
        f"{rows}the archive keeps events for {days} days from their receipt",
    )


def _not_explained(job: str, found: Row) -> OperatorError:
    if found["kind"] == "Refused":
        return OperatorError(
            f"which events a row of {job} is of can't be told: {found['error']}",
            f"`millrace audit --job {job}` counts its rows again",
        )
    return OperatorError(f"rows of {job} could not be explained: {found['error']}")


def _open(row: Row | None) -> list[str]:
    if row is None or row["final"]:
        return []
    return ["the window isn't final: what comes meanwhile may be in one of both numbers alone"]


def _floor(moment: datetime, step: timedelta) -> datetime:
    return moment - (moment - EPOCH) % step


def _naive(moment: datetime) -> str:
    """UTC without saying so, as Spark has it."""
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat()
