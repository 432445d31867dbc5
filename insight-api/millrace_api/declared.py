"""Routes of the jobs that are one file: made from what each job says of its rows.

A job describes its table in ``job_outputs`` when it begins to lead; nothing here knows any job.
"""

from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Annotated, Any, NamedTuple

from fastapi import APIRouter, Depends, FastAPI, Query, Request, Response
from pydantic import BaseModel, Field

from millrace_api import cursors, models, parameters
from millrace_api.access import ReaderDep, needs
from millrace_api.client_identity import ClientDep
from millrace_api.cursors import Cursor, CursorText
from millrace_api.generations import Revision
from millrace_api.job_rows import WINDOW_START, Page, Place, Row, RowReader
from millrace_api.kinds import Kind, shown, written
from millrace_api.outputs import Catalogue, Output, Sessions
from millrace_api.parameters import From, To
from millrace_api.problems import NotFound
from millrace_api.progress import is_final, states_of
from millrace_api.ranges import BadParameter, Span, iso, parse_moment, short
from millrace_api.store import Store
from millrace_shared.generations import Overlay

LONGEST = timedelta(days=31)
MOST_WINDOWS = 2976  # 31 days of quarters of an hour
GENERIC = "/v1/jobs/{job}"

router = APIRouter(dependencies=[needs("insights")])
NOT_FOUND: dict[int | str, dict[str, Any]] = {
    404: {"model": models.Problem, "description": "No such job; says which there are."}
}


class DeclaredJob(models.Doing):
    """A job with its window, the columns of its rows by their types, and what it does now."""

    job: str
    summary: str
    window_seconds: int
    slide_seconds: int = Field(description="From a window's start to the next one's.")
    offset_seconds: int = Field(description="Of windows' starts behind multiples of the slide.")
    join_seconds: int | None = Field(description="So far apart at most are events that it joins.")
    key: dict[str, Kind]
    values: dict[str, Kind]
    approximate: dict[str, float] = Field(description="Relative standard error of sketches.")
    rows: str = Field(description="Where the rows are.")
    sessions: Sessions | None = Field(
        description="For rows that are slots: /live, /closed and /sessions below `rows` merge them."
    )


class Unusable(BaseModel):
    """A job whose description can't be used: it has no rows here until that is mended."""

    job: str
    problem: str


class DeclaredJobs(BaseModel):
    jobs: list[DeclaredJob]
    unusable: list[Unusable]


class JobRows(BaseModel):
    """Rows of a job, the newest windows first."""

    job: str
    start: datetime = Field(serialization_alias="from")
    end: datetime = Field(serialization_alias="to")
    window_seconds: int
    truncated: bool = Field(description="There are more rows: `next` is not null.")
    next: str | None = Field(
        description="Asked again with it as `cursor`, the same question gets the rows that follow."
        " For a part of a key there may be none, or fewer than `limit` before others follow: an"
        " answer looks at so many rows and no more."
    )
    rows: list[dict[str, Any]]
    revision: Revision


class Asked(NamedTuple):
    """A job, the columns of its key that were asked for with their values, and which generation's
    rows readers see."""

    output: Output
    wanted: Mapping[str, Any]
    overlay: Overlay


@parameters.takes_columns
async def asked_of(request: Request, job: str) -> Asked:
    """Raises NotFound for a job that hasn't described its rows, BadParameter for what isn't its."""
    outputs = await _catalogue(request).read()
    if why := outputs.unusable.get(job):
        raise NotFound(f"what job {job!r} says of its rows can't be used: {why}")
    if job not in outputs.usable:
        raise NotFound(f"no job {short(job)} has written yet; /v1/jobs lists those that have")
    output = outputs.usable[job]
    own = parameters.declared(request)
    given = {name: text for name, text in request.query_params.items() if name not in own}
    for name in given.keys() - output.key.keys():
        there_are = f"is no column of the key, which is {', '.join(output.key)}"
        raise parameters.refused(name, there_are)
    wanted = {name: output.parsed(name, text) for name, text in given.items()}
    return Asked(output, wanted, await request.app.state.store.overlay(output.table))


AskedDep = Annotated[Asked, Depends(asked_of)]


@router.get("/v1/jobs", tags=["jobs"])
async def jobs(request: Request, reader: ReaderDep) -> DeclaredJobs:
    """The jobs that are one file each, and what their rows have."""
    outputs = await _catalogue(request).read()
    states = await states_of(request.app.state.store, datetime.now(UTC))
    return DeclaredJobs(
        jobs=[
            DeclaredJob(
                **output.model_dump(),
                **DeclaredJob.facts(states.get(output.job), reader),
                rows=f"/v1/jobs/{output.job}",
            )
            for output in outputs.usable.values()
        ],
        unusable=[Unusable(job=job, problem=why) for job, why in outputs.unusable.items()],
    )


@router.get(GENERIC, tags=["jobs"], responses=NOT_FOUND)
async def job_rows(
    request: Request,
    response: Response,
    client: ClientDep,
    reader: ReaderDep,
    asked: AskedDep,
    start: From,
    end: To,
    limit: Annotated[int, Query(ge=1, le=1000, description="How many rows.")] = 100,
    cursor: CursorText = None,
) -> JobRows:
    """Rows whose window starts in the range. A column of the key as parameter asks for its rows.

    Rows that are slots of sessions need the scope `sessions`.
    """
    store: Store = request.app.state.store
    looked_at = request.app.state.settings.looked_at_rows
    output, wanted, overlay = asked
    if output.sessions:
        reader.needs("sessions")
    span = span_of(output, start, end)
    # Who goes on after a switch would get a mixture.
    question = ("rows", output.table, span, sorted(wanted.items()), overlay.revision)
    after = None if cursor is None else _place(output, span, cursor, question)
    # First, so that no row is called final that changed after its watermark was read.
    progress = await store.progress_of(output.job)
    is_search = bool(wanted) and not output.is_whole(wanted)
    windows = span.length // output.slide
    async with client.lane(max(windows, looked_at if is_search else 0)):
        reading = RowReader(store, output, looked_at, overlay)
        page = await reading.page(span, wanted, after, limit)
    following = _following(page, question)
    if following:
        response.headers["Link"] = cursors.link(request, following)
    watermark = progress.watermark if progress else None
    return JobRows(
        job=output.job,
        start=span.start,
        end=span.end,
        window_seconds=output.window_seconds,
        truncated=following is not None,
        next=following,
        rows=[_shown(output, row, watermark) for row in page.rows],
        revision=overlay.revision,
    )


def install(app: FastAPI) -> None:
    app.include_router(router)


def span_of(output: Output, start: str, end: str) -> Span:
    """Raises BadParameter for one that is too long, or none."""
    span = Span(parse_moment("from", start), parse_moment("to", end))
    if span.start >= span.end:
        raise BadParameter("to", "must be later than 'from' (the range is from ≤ time < to)")
    longest = min(LONGEST, output.slide * MOST_WINDOWS)
    if span.length > longest:
        raise BadParameter("to", f"the range may have {longest} at most; ask in parts")
    return span


def _catalogue(request: Request) -> Catalogue:
    return request.app.state.catalogue


def _place(output: Output, span: Span, cursor: str, question: Any) -> Place:
    """Raises BadParameter for one that is in no partition of the job, or outside the range."""
    found = Cursor.parse(cursor, question)
    if not (0 <= found.bucket < output.buckets and span.start <= found.at < span.end):
        raise cursors.unknown()
    return Place(found.at, found.bucket, found.key_of(output.key))


def _following(page: Page, question: Any) -> str | None:
    if page.more is None:
        return None
    start, bucket, key = page.more
    return Cursor.text(question, start, map(written, key), bucket)


def _shown(output: Output, row: Row, watermark: datetime | None) -> dict[str, Any]:
    start = row.place.start
    end = start + output.window
    return {
        WINDOW_START: iso(start),
        "window_end": iso(end),
        **{name: shown(row.values[name]) for name in output.columns},
        "final": is_final(end, watermark),
        "version": row.values["version"],
    }
