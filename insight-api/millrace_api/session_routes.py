"""Sessions of any job whose rows are slots of them, merged when somebody asks."""

import asyncio
from datetime import datetime, timedelta
from typing import Annotated, Any, NamedTuple

from fastapi import APIRouter, Depends, FastAPI, Query, Request, Response
from pydantic import BaseModel, Field

from millrace_api import cursors
from millrace_api.access import needs
from millrace_api.client_identity import ClientDep
from millrace_api.cursors import Cursor, CursorText
from millrace_api.declared import GENERIC, NOT_FOUND, AskedDep, span_of
from millrace_api.generations import Revision
from millrace_api.kinds import shown, written
from millrace_api.outputs import Output
from millrace_api.parameters import From, To
from millrace_api.problems import NotFound
from millrace_api.progress import is_final
from millrace_api.ranges import DAY, MINUTE, BadParameter, Span, floor, parse_span
from millrace_api.session_reader import Clock, Found, Key, Reader
from millrace_api.sessions import Merger, Session
from millrace_api.shared import Shared
from millrace_api.store import TooManyRows
from millrace_shared.generations import Overlay

LONGEST_CLOSED = DAY
MOST_SHOWN = 100
# As many slots as may be read take a second to read, and several on a busy machine. A refusal is
# kept, too: it cost as much. Who asks again soon after doesn't wait for what is newer than that.
KEEP_SECONDS, STALE_SECONDS = 3.0, 12.0

router = APIRouter(dependencies=[needs("sessions")])


class SessionList(BaseModel):
    """Sessions, that with the newest event first. Each has its key, the job's columns, and more."""

    job: str
    as_of: datetime = Field(description="The newest event that the job has seen.")
    open: int = Field(description="How many of those asked for are open, shown or not.")
    sessions: list[dict[str, Any]] = Field(
        description="`complete` is false for one that began more than a day before: the part before"
        " isn't counted. `bounced` is true for one that is closed and had one page at most."
    )
    revision: Revision


class LiveSessions(SessionList):
    next: str | None = Field(
        description="Asked again with it as `cursor`, the same question gets the sessions that"
        " follow. One that has had another event meanwhile is among the first again."
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
    revision: Revision


class Question(NamedTuple):
    """A job of sessions, whose are asked for (a whole key's, or everybody's), and which
    generation's rows readers see."""

    output: Output
    merger: Merger
    key: Key | None
    overlay: Overlay


async def question_of(asked: AskedDep) -> Question:
    """Raises NotFound for a job of other rows, BadParameter for a part of a key."""
    output, wanted, overlay = asked
    if output.sessions is None:
        raise NotFound(f"the rows of job {output.job!r} are no slots of sessions")
    if wanted and (missing := [name for name in output.key if name not in wanted]):
        raise BadParameter(missing[0], f"is missing: a key is {', '.join(output.key)}")
    key = tuple(wanted[name] for name in output.key) if wanted else None
    return Question(output, Merger(output), key, overlay)


QuestionDep = Annotated[Question, Depends(question_of)]


@router.get(f"{GENERIC}/live", tags=["jobs"], responses=NOT_FOUND)
async def live(
    request: Request,
    response: Response,
    client: ClientDep,
    asked: QuestionDep,
    limit: Annotated[int, Query(ge=1, le=MOST_SHOWN, description="How many sessions.")] = 20,
    cursor: CursorText = None,
) -> LiveSessions:
    """Sessions that are open now; the key as parameters asks for its own.

    As of seconds ago: who has asked within a quarter of a minute gets the last answer while another
    is sought. 422 if more are active than one answer may read: ask for a key then.
    """
    output, merger, key, overlay = asked
    state = request.app.state
    times = merger.only()  # tell who is open; the rest is read of those that are shown
    about = ("live", output.table, key)
    after = None if cursor is None else _place(output, Cursor.parse(cursor, about))

    async def everybody() -> tuple[Clock, Span, list[Session]]:
        clock = await Clock.read(state.store, output.job)
        # Rows may be newer than the clock, which was read before them.
        last_events = Span(clock.now - times.gap + timedelta.resolution, clock.now + times.gap)
        reader = _reader(request, asked, times)
        found = await reader.ending(last_events, key and [key])
        return clock, last_events, _newest_first(found.sessions)

    async def newest() -> LiveSessions:
        whose = (output.table, key, overlay.revision)
        clock, last_events, found = await state.live_sessions.ask(whose, everybody)
        following = [one for one in found if after is None or _order(one) < after]
        listed = following[:limit]
        reader = _reader(request, asked, merger)
        ending = await reader.ending(last_events, {one.key for one in listed})
        whole = _those(listed, await reader.reach_back(ending, last_events))
        return LiveSessions(
            job=output.job,
            as_of=clock.now,
            open=len(found),
            sessions=_listed(merger, whole, clock),
            next=_cursor(following[limit - 1], about) if len(following) > limit else None,
            revision=overlay.revision,
        )

    async with client.lane(limit):  # light, as those of all keys are read once for all clients
        question = (output.table, key, overlay.revision, limit, after)
        answer = await state.live_answers.ask(question, newest)
    if answer.next:
        response.headers["Link"] = cursors.link(request, answer.next)
    return answer


@router.get(f"{GENERIC}/closed", tags=["jobs"], responses=NOT_FOUND)
async def closed(
    request: Request, client: ClientDep, asked: QuestionDep, start: From, end: To
) -> ClosedSessions:
    """Closed sessions by the minute in which their gap was over: a day at most, of whole minutes.

    422 if more would have to be read than one answer may: ask for fewer minutes then.
    """
    output, merger, key, overlay = asked
    merger = merger.only(merger.pages_column)
    span = parse_span(start, end, step=MINUTE, longest=LONGEST_CLOSED)

    async def summarised() -> ClosedSessions:
        clock = await Clock.read(request.app.state.store, output.job)
        last_events = Span(span.start - merger.gap, span.end - merger.gap)
        reader = _reader(request, asked, merger)
        async with client.lane(request.app.state.settings.session_rows):
            found = await reader.ending(last_events, key and [key])
            found = await reader.reach_back(found, last_events)
            over = [one for one in found.sessions if not clock.is_open(one, merger)]
            minutes = await asyncio.to_thread(merger.by_minute, over)
        return ClosedSessions(
            job=output.job,
            start=span.start,
            end=span.end,
            as_of=clock.now,
            minutes=[
                ClosedMinute(
                    **minute._asdict(), final=_is_settled(output, minute.start + MINUTE, clock)
                )
                for minute in minutes
            ],
            revision=overlay.revision,
        )

    whose = (output.table, span, key, overlay.revision)
    return await request.app.state.closed_sessions.ask(whose, summarised)


@router.get(f"{GENERIC}/sessions", tags=["jobs"], responses=NOT_FOUND)
async def sessions(
    request: Request, client: ClientDep, asked: QuestionDep, start: From, end: To
) -> SessionList:
    """One key's sessions, open or closed, whose last event is in the range: 31 days at most."""
    output, merger, key, overlay = asked
    if not key:
        raise BadParameter(next(iter(output.key)), "is missing: whose sessions?")
    last_events = span_of(output, start, end)
    reader = _reader(request, asked, merger)
    async with client.lane(last_events.length // output.window):
        clock = await Clock.read(request.app.state.store, output.job)
        found = await reader.reach_back(await reader.ending(last_events, [key]), last_events)
    return SessionList(
        job=output.job,
        as_of=clock.now,
        open=sum(clock.is_open(one, merger) for one in found.sessions),
        sessions=_listed(merger, found, clock),
        revision=overlay.revision,
    )


def install(app: FastAPI) -> None:
    app.state.live_sessions = Shared(KEEP_SECONDS, TooManyRows)
    app.state.live_answers = Shared(1, (), STALE_SECONDS)
    app.state.closed_sessions = Shared(KEEP_SECONDS, TooManyRows)
    app.include_router(router)


def _reader(request: Request, asked: Question, merger: Merger) -> Reader:
    """Args: ``merger`` may have fewer values than that of the question."""
    state = request.app.state
    return Reader(state.store, asked.output, merger, state.settings.session_rows, asked.overlay)


def _order(session: Session) -> tuple[datetime, Key]:
    return session.end, session.key


def _newest_first(found: list[Session]) -> list[Session]:
    return sorted(found, key=_order, reverse=True)


def _those(listed: list[Session], found: Found) -> Found:
    """Of what was found of their keys, the sessions that these are parts of."""
    ends: dict[Key, list[datetime]] = {}
    for one in listed:
        ends.setdefault(one.key, []).append(one.end)
    whole = [
        one
        for one in found.sessions
        if any(one.start <= end <= one.end for end in ends.get(one.key, ()))
    ]
    return Found(whole, found.edge)


def _cursor(session: Session, question: Any) -> str:
    return Cursor.text(question, session.end, map(written, session.key))


def _place(output: Output, cursor: Cursor) -> tuple[datetime, Key]:
    return cursor.at, cursor.key_of(output.key)


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
    step = output.window
    return is_final(floor(moment - timedelta.resolution, step) + step, clock.watermark)
