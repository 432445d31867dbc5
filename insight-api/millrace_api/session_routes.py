"""Sessions of any job whose rows are slots of them, merged when somebody asks."""

import asyncio
from datetime import datetime, timedelta
from typing import Annotated, Any

from fastapi import APIRouter, FastAPI, Query, Request
from pydantic import BaseModel, Field

from millrace_api import problems
from millrace_api.client_identity import ClientDep
from millrace_api.declared import GENERIC, Output, output_of, shown, span_of, wanted_of
from millrace_api.progress import is_final
from millrace_api.ranges import DAY, MINUTE, BadRange, Span, floor, parse_span
from millrace_api.session_reader import Clock, Found, Key, Reader
from millrace_api.sessions import Merger, Session
from millrace_api.shared import Shared
from millrace_api.store import TooManyRows

LONGEST_CLOSED = DAY
MOST_SHOWN = 100
# As many slots as may be read take a second to read, and several on a busy machine. A refusal is
# kept, too: it cost as much. Who asks again soon after doesn't wait for what is newer than that.
KEEP_SECONDS, STALE_SECONDS = 3.0, 12.0

router = APIRouter()

From = Annotated[str, Query(alias="from", description="Start, included.")]
To = Annotated[str, Query(alias="to", description="End, excluded.")]


class Sessions(BaseModel):
    """Sessions, that with the newest event first. Each has its key, the job's columns, and more."""

    job: str
    as_of: datetime = Field(description="The newest event that the job has seen.")
    open: int = Field(description="How many of those asked for are open, shown or not.")
    sessions: list[dict[str, Any]] = Field(
        description="`complete` is false for one that began more than a day before: the part before"
        " isn't counted. `bounced` is true for one that is closed and had one page at most."
    )


class ClosedMinute(BaseModel):
    """Sessions whose gap was over in this minute."""

    start: datetime
    closed: int
    bounced: int = Field(description="Those with one page at most.")
    mean_seconds: float
    mean_pages: float
    final: bool = Field(description="No late event can change it any more.")


class ClosedSessions(BaseModel):
    """Minutes in which sessions closed, oldest first; the others are absent."""

    job: str
    start: datetime = Field(serialization_alias="from")
    end: datetime = Field(serialization_alias="to")
    as_of: datetime
    minutes: list[ClosedMinute]


@router.get(f"{GENERIC}/live", tags=["jobs"])
async def live(
    request: Request,
    client: ClientDep,
    job: str,
    limit: Annotated[int, Query(ge=1, le=MOST_SHOWN, description="How many sessions.")] = 20,
) -> Sessions:
    """Sessions that are open now; the key as parameters asks for its own.

    As of seconds ago: who has asked within a quarter of a minute gets the last answer while another
    is sought. 422 if more are active than one answer may read: ask for a key then.
    """
    output, merger, key = await _asked(request, job)
    state = request.app.state
    times = merger.only()  # tell who is open; the rest is read of those that are shown

    async def everybody() -> tuple[Clock, Span, list[Session]]:
        clock = await Clock.read(state.store, job)
        # Rows may be newer than the clock, which was read before them.
        last_events = Span(clock.now - times.gap + timedelta.resolution, clock.now + times.gap)
        found = await _reader(request, output, times).ending(last_events, key and [key])
        return clock, last_events, _newest_first(found.sessions)

    async def newest() -> Sessions:
        clock, last_events, found = await state.live_sessions.ask((output.table, key), everybody)
        reader = _reader(request, output, merger)
        whole = await reader.ending(last_events, {one.key for one in found[:limit]})
        whole = await reader.reach_back(whole, last_events)
        listed = _listed(merger, whole, clock)
        return Sessions(job=job, as_of=clock.now, open=len(found), sessions=listed)

    async with client.lane(limit):  # light, as those of all keys are read once for all clients
        return await state.live_answers.ask((output.table, key, limit), newest)


@router.get(f"{GENERIC}/closed", tags=["jobs"])
async def closed(
    request: Request, client: ClientDep, job: str, start: From, end: To
) -> ClosedSessions:
    """Closed sessions by the minute in which their gap was over: a day at most, of whole minutes.

    422 if more would have to be read than one answer may: ask for fewer minutes then.
    """
    output, merger, key = await _asked(request, job)
    merger = merger.only(merger.pages_column)
    asked = parse_span(start, end, step=MINUTE, longest=LONGEST_CLOSED)

    async def summarised() -> ClosedSessions:
        clock = await Clock.read(request.app.state.store, job)
        last_events = Span(asked.start - merger.gap, asked.end - merger.gap)
        reader = _reader(request, output, merger)
        async with client.lane(request.app.state.settings.session_rows):
            found = await reader.ending(last_events, key and [key])
            found = await reader.reach_back(found, last_events)
            over = [one for one in found.sessions if not clock.is_open(one, merger)]
            minutes = await asyncio.to_thread(merger.by_minute, over)
        return ClosedSessions(
            job=job,
            start=asked.start,
            end=asked.end,
            as_of=clock.now,
            minutes=[
                ClosedMinute(
                    **minute._asdict(), final=_is_settled(output, minute.start + MINUTE, clock)
                )
                for minute in minutes
            ],
        )

    about = (output.table, asked, key)
    return await request.app.state.closed_sessions.ask(about, summarised)


@router.get(f"{GENERIC}/sessions", tags=["jobs"])
async def sessions(request: Request, client: ClientDep, job: str, start: From, end: To) -> Sessions:
    """One key's sessions, open or closed, whose last event is in the range: 31 days at most."""
    output, merger, key = await _asked(request, job)
    if not key:
        raise BadRange(next(iter(output.key)), "is missing: whose sessions?")
    last_events = span_of(output, start, end)
    reader = _reader(request, output, merger)
    async with client.lane(last_events.length // timedelta(seconds=output.window_seconds)):
        clock = await Clock.read(request.app.state.store, job)
        found = await reader.reach_back(await reader.ending(last_events, [key]), last_events)
    return Sessions(
        job=job,
        as_of=clock.now,
        open=sum(clock.is_open(one, merger) for one in found.sessions),
        sessions=_listed(merger, found, clock),
    )


def install(app: FastAPI) -> None:
    app.state.live_sessions = Shared(KEEP_SECONDS, TooManyRows)
    app.state.live_answers = Shared(1, (), STALE_SECONDS)
    app.state.closed_sessions = Shared(KEEP_SECONDS, TooManyRows)
    app.include_router(router)


async def _asked(request: Request, job: str) -> tuple[Output, Merger, Key | None]:
    """The job, and the key that was asked for: a whole one, or none."""
    output = await output_of(request, job)
    if output.sessions is None:
        raise problems.NotFound(f"the rows of job {job!r} are no slots of sessions")
    wanted = wanted_of(output, request)
    if wanted and (missing := [name for name in output.key if name not in wanted]):
        raise BadRange(missing[0], f"is missing: a key is {', '.join(output.key)}")
    key = tuple(wanted[name] for name in output.key) if wanted else None
    return output, Merger(output), key


def _reader(request: Request, output: Output, merger: Merger) -> Reader:
    state = request.app.state
    return Reader(state.store, output, merger, state.settings.session_rows)


def _newest_first(found: list[Session]) -> list[Session]:
    return sorted(found, key=lambda one: (one.end, one.key), reverse=True)


def _listed(merger: Merger, found: Found, clock: Clock) -> list[dict[str, Any]]:
    return [
        {
            **{name: shown(value) for name, value in merger.named(one).items()},
            "seconds": (one.end - one.start).total_seconds(),
            "open": (is_open := clock.is_open(one, merger)),
            "bounced": not is_open and merger.bounced(one),
            "complete": not merger.may_begin_before(one, found.edge),
        }
        for one in _newest_first(found.sessions)
    ]


def _is_settled(output: Output, moment: datetime, clock: Clock) -> bool:
    """Whether the windows of all events before the moment are closed."""
    step = timedelta(seconds=output.window_seconds)
    return is_final(floor(moment - timedelta.resolution, step) + step, clock.watermark)
