"""Routes of the jobs that are one file: made from what each job says of its rows.

A job describes its table in ``job_outputs`` when it begins to lead; nothing here knows any job.
"""

import asyncio
import logging
from collections.abc import Sequence
from datetime import UTC, date, datetime, timedelta
from typing import Annotated, Any, Literal

from fastapi import APIRouter, FastAPI, Query, Request
from fastapi.openapi.utils import get_openapi
from pydantic import BaseModel, ConfigDict, Field

from millrace_api import models, problems
from millrace_api.client_identity import ClientDep
from millrace_api.progress import states_of
from millrace_api.ranges import BadRange, Span, parse_moment
from millrace_api.store import Store, StoreUnavailable
from millrace_shared.buckets import bucket

log = logging.getLogger(__name__)

LONGEST = timedelta(days=31)
MOST_WINDOWS = 2976  # 31 days of quarters of an hour
REFRESH_SECONDS = 15.0
JSON_TYPES = {"int": "integer", "bigint": "integer", "double": "number", "boolean": "boolean"}
GENERIC = "/v1/jobs/{job}"
COLUMN = r"^[A-Za-z_][A-Za-z0-9_]*$"

router = APIRouter()


class Sessions(BaseModel):
    """How rows that are slots become sessions; see millrace_jobs.output."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    gap_seconds: int
    pages: str
    merges: dict[str, Literal["start", "end", "sum", "min", "max", "first", "last"]]


class Output(BaseModel):
    """What a job says of its rows; see millrace_jobs.output, which writes it."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    job: str = Field(pattern=COLUMN)
    table: str = Field(pattern=COLUMN)
    summary: str
    window_seconds: int
    key: dict[str, str]
    values: dict[str, str]
    approximate: dict[str, float]
    buckets: int
    sessions: Sessions | None = None

    @property
    def columns(self) -> list[str]:
        return [*self.key, *self.values]

    def bucket(self, key: Sequence[Any]) -> int:
        """The partition of a day that a key is in: as the job deals them."""
        return bucket(key, self.buckets)


class DeclaredJob(models.Doing):
    """A job with its window, the columns of its rows by their types, and what it does now."""

    job: str
    summary: str
    window_seconds: int
    key: dict[str, str]
    values: dict[str, str]
    approximate: dict[str, float] = Field(description="Relative standard error of sketches.")
    rows: str = Field(description="Where the rows are.")
    sessions: Sessions | None = Field(
        description="For rows that are slots: /live, /closed and /sessions below `rows` merge them."
    )


class DeclaredJobs(BaseModel):
    jobs: list[DeclaredJob]


class JobRows(BaseModel):
    """Rows of a job, the newest windows first."""

    job: str
    start: datetime = Field(serialization_alias="from")
    end: datetime = Field(serialization_alias="to")
    window_seconds: int
    truncated: bool = Field(description="There are more rows than `limit`.")
    rows: list[dict[str, Any]]


@router.get("/v1/jobs", tags=["jobs"])
async def jobs(request: Request) -> DeclaredJobs:
    """The jobs that are one file each, and what their rows have."""
    outputs = await refresh(request.app)
    states = await states_of(request.app.state.store, datetime.now(UTC))
    return DeclaredJobs(
        jobs=[
            DeclaredJob(
                **output.model_dump(),
                **DeclaredJob.facts(states.get(output.job)),
                rows=f"/v1/jobs/{output.job}",
            )
            for output in outputs.values()
        ]
    )


@router.get(GENERIC, tags=["jobs"])
async def job_rows(
    request: Request,
    client: ClientDep,
    job: str,
    start: Annotated[str, Query(alias="from", description="Start, included.")],
    end: Annotated[str, Query(alias="to", description="End, excluded.")],
    limit: Annotated[int, Query(ge=1, le=1000, description="How many rows.")] = 100,
) -> JobRows:
    """Rows whose window starts in the range. A column of the key as parameter asks for its rows."""
    store: Store = request.app.state.store
    output = await output_of(request, job)
    span = span_of(output, start, end)
    wanted = wanted_of(output, request)
    # First, so that no row is called final that changed after its watermark was read.
    progress = await store.progress_of(job)
    partitions = _partitions(output, span, wanted)
    async with client.lane(span.length // timedelta(seconds=output.window_seconds)):
        found = await store.job_rows(
            output.table, output.columns, partitions, span, limit + 1, wanted
        )
    watermark = progress.watermark if progress else None
    return JobRows(
        job=job,
        start=span.start,
        end=span.end,
        window_seconds=output.window_seconds,
        truncated=len(found) > limit,
        rows=[_row(output, row, watermark) for row in found[:limit]],
    )


async def output_of(request: Request, job: str) -> Output:
    """Raises NotFound for a job that hasn't described its rows."""
    outputs = await refresh(request.app)
    if job not in outputs:
        raise problems.NotFound(f"no job {job!r} has written yet; /v1/jobs lists those that have")
    return outputs[job]


async def refresh(app: FastAPI) -> dict[str, Output]:
    """What the jobs say of themselves, by name."""
    descriptions = await app.state.store.descriptions()
    outputs = [Output.model_validate_json(text) for text in descriptions]
    app.state.outputs = {output.job: output for output in sorted(outputs, key=lambda o: o.job)}
    return app.state.outputs


async def keep_fresh(app: FastAPI) -> None:
    """For the OpenAPI document, which is made without waiting for anything."""
    while True:
        try:
            await refresh(app)
        except StoreUnavailable as error:
            log.debug("the jobs' descriptions can't be read: %s", error)
        await asyncio.sleep(REFRESH_SECONDS)


def install(app: FastAPI) -> None:
    """Routes, and a path for each job in the OpenAPI document."""
    app.state.outputs = {}
    app.include_router(router)

    def openapi() -> dict[str, Any]:
        document = get_openapi(
            title=app.title,
            version=app.version,
            description=app.description,
            routes=app.routes,
        )
        paths = document["paths"]
        below = [path.removeprefix(GENERIC) for path in paths if path.startswith(f"{GENERIC}/")]
        for output in app.state.outputs.values():
            rows = _operation(paths[GENERIC]["get"], output, "")
            paths[f"/v1/jobs/{output.job}"] = {"get": _with_rows(rows, output)}
            for name in below if output.sessions else []:
                operation = _operation(paths[GENERIC + name]["get"], output, name)
                paths[f"/v1/jobs/{output.job}{name}"] = {"get": operation}
        return document

    app.openapi = openapi  # type: ignore[method-assign]


def _operation(generic: dict[str, Any], output: Output, name: str) -> dict[str, Any]:
    """The generic route, as this job's: its summary, and its key as parameters."""
    parameters = [one for one in generic["parameters"] if one["name"] != "job"]
    keys = [
        {"name": name, "in": "query", "required": False, "schema": _schema(kind)}
        for name, kind in output.key.items()
    ]
    return generic | {
        "summary": output.summary,
        "operationId": f"job_{output.job}{name.replace('/', '_')}",
        "parameters": [*parameters, *keys],
    }


def _with_rows(operation: dict[str, Any], output: Output) -> dict[str, Any]:
    """The columns of the answer's rows, by their types."""
    properties = {name: _schema(kind) for name, kind in (output.key | output.values).items()}
    row = {"type": "object", "properties": properties}
    rows = {"type": "object", "properties": {"rows": {"type": "array", "items": row}}}
    answer = {"description": output.summary, "content": {"application/json": {"schema": rows}}}
    return operation | {"responses": operation["responses"] | {"200": answer}}


def _schema(kind: str) -> dict[str, str]:
    if kind == "timestamp":
        return {"type": "string", "format": "date-time"}
    return {"type": JSON_TYPES.get(kind, "string")}


def span_of(output: Output, start: str, end: str) -> Span:
    """Raises BadRange for one that is too long, or none."""
    span = Span(parse_moment("from", start), parse_moment("to", end))
    if span.start >= span.end:
        raise BadRange("to", "must be later than 'from' (the range is from ≤ time < to)")
    longest = min(LONGEST, timedelta(seconds=output.window_seconds * MOST_WINDOWS))
    if span.length > longest:
        raise BadRange("to", f"the range may have {longest} at most; ask in parts")
    return span


def wanted_of(output: Output, request: Request) -> dict[str, Any]:
    """The columns of the key that were given. Raises BadRange for what is no such column."""
    wanted: dict[str, Any] = {}
    for name, text in request.query_params.items():
        if name in ("from", "to", "limit"):
            continue
        if name not in output.key:
            raise BadRange(name, f"is no column of the key, which is {', '.join(output.key)}")
        wanted[name] = _parsed(name, output.key[name], text)
    return wanted


def _parsed(name: str, kind: str, text: str) -> Any:
    if kind not in ("int", "bigint"):
        return text
    try:
        return int(text)
    except ValueError:
        raise BadRange(name, f"'{text}' is no whole number") from None


def _partitions(output: Output, span: Span, wanted: dict[str, Any]) -> list[tuple[date, int]]:
    """The newest day first. A whole key is in one partition of each day."""
    names = list(output.key)
    if wanted.keys() == output.key.keys():
        buckets = [output.bucket([wanted[name] for name in names])]
    else:
        buckets = list(range(output.buckets))
    return [(day, bucket) for day in reversed(list(span.days())) for bucket in buckets]


def _row(output: Output, row: dict[str, Any], watermark: datetime | None) -> dict[str, Any]:
    start = row["window_start"].replace(tzinfo=UTC)
    end = start + timedelta(seconds=output.window_seconds)
    return {
        "window_start": _iso(start),
        "window_end": _iso(end),
        **{name: shown(row[name]) for name in output.columns},
        "final": watermark is not None and end <= watermark,
        "version": row["version"],
    }


def shown(value: Any) -> Any:
    if isinstance(value, datetime):
        return _iso(value.replace(tzinfo=UTC))
    if isinstance(value, bytes):
        return value.hex()
    return value


def _iso(moment: datetime) -> str:
    return moment.isoformat().replace("+00:00", "Z")
