"""What the jobs that are one file say of their rows, in the table ``job_outputs``.

A description that can't be used is left out, with the reason: no other job's routes depend on it.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import Annotated, Any, Literal

from pydantic import (
    BaseModel,
    ConfigDict,
    Field,
    StringConstraints,
    ValidationError,
    model_validator,
)

from millrace_api.kinds import Kind, parsed
from millrace_api.ranges import Span, steps
from millrace_api.store import Store, StoreUnavailable
from millrace_shared.buckets import bucket

log = logging.getLogger(__name__)

REFRESH_SECONDS = 15.0

# Of what stands in queries and paths.
Name = Annotated[str, StringConstraints(pattern=r"^[A-Za-z_][A-Za-z0-9_]*$")]
# Bounds of what is computed with; no job of anybody's is near them.
Seconds = Annotated[int, Field(gt=0, le=366 * 86_400)]
Buckets = Annotated[int, Field(gt=0, le=10_000)]
Merge = Literal["start", "end", "sum", "min", "max", "first", "last"]


class Sessions(BaseModel):
    """How rows that are slots become sessions; see millrace_jobs.output."""

    model_config = ConfigDict(extra="ignore", frozen=True)

    gap_seconds: Seconds
    pages: Name
    merges: dict[Name, Merge]


class Output(BaseModel):
    """What a job says of its rows; see millrace_jobs.output, which writes it.

    Earlier versions of jobs had no windows but those that follow each other from 1970 on.
    """

    model_config = ConfigDict(extra="ignore", frozen=True)

    job: Name
    table: Name
    summary: str
    window_seconds: Seconds
    slide_seconds: Seconds = Field(default_factory=lambda said: said["window_seconds"])
    offset_seconds: Annotated[int, Field(ge=0, le=366 * 86_400)] = 0
    join_seconds: int | None = None
    key: dict[Name, Kind]
    values: dict[Name, Kind]
    approximate: dict[Name, float]
    buckets: Buckets
    sessions: Sessions | None = None

    @model_validator(mode="after")
    def _sessions_have_their_columns(self) -> "Output":
        if self.sessions is None:
            return self
        merges = self.sessions.merges
        if missing := merges.keys() - self.values.keys():
            raise ValueError(f"its sessions name {', '.join(sorted(missing))}, which no row has")
        if self.sessions.pages not in merges:
            raise ValueError(f"its sessions don't say how {self.sessions.pages} is merged")
        if lacking := {"start", "end"} - {*merges.values()}:
            raise ValueError(f"its sessions have no {' and no '.join(sorted(lacking))}")
        return self

    @property
    def window(self) -> timedelta:
        return timedelta(seconds=self.window_seconds)

    @property
    def slide(self) -> timedelta:
        """From the start of a window to that of the next one."""
        return timedelta(seconds=self.slide_seconds)

    def starts(self, span: Span) -> list[datetime]:
        """Of the windows that start in the span."""
        offset = timedelta(seconds=self.offset_seconds)
        shifted = Span(span.start - offset, span.end - offset)
        return [at + offset for at in steps(shifted, self.slide) if at >= shifted.start]

    @property
    def columns(self) -> list[str]:
        return [*self.key, *self.values]

    def is_whole(self, key: Mapping[str, Any]) -> bool:
        """Whether values of all columns of the key are there, which name one row of a window."""
        return bool(key) and key.keys() == self.key.keys()

    def bucket(self, key: Sequence[Any]) -> int:
        """The partition of a day that a key is in: as the job deals them."""
        return bucket(key, self.buckets)

    def parsed(self, column: str, text: str) -> Any:
        """A value of a column of the key. Raises BadParameter."""
        return parsed(column, self.key[column], text)


@dataclass(frozen=True)
class Outputs:
    """Descriptions by their jobs' names; ``unusable`` are reasons, by jobs whose can't be used."""

    usable: Mapping[str, Output] = field(default_factory=dict)
    unusable: Mapping[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, descriptions: Mapping[str, str]) -> "Outputs":
        usable, unusable = {}, {}
        for job, text in sorted(descriptions.items()):
            try:
                usable[job] = _output(job, text)
            except ValueError as error:
                unusable[job] = _why(error)
        return cls(usable, unusable)


class Catalogue:
    """The jobs' descriptions, as they were read last."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self.outputs = Outputs()

    async def read(self) -> Outputs:
        """What the jobs say now: the same object while it is the same. Raises StoreUnavailable."""
        found = Outputs.of(await self._store.descriptions())
        for job, why in found.unusable.items():
            if self.outputs.unusable.get(job) != why:  # once, not whenever somebody asks
                log.warning("job %r is left out, its description can't be used: %s", job, why)
        if found != self.outputs:
            self.outputs = found
        return self.outputs

    async def keep_reading(self) -> None:
        """For the OpenAPI document, which is made without waiting for anything."""
        while True:
            try:
                await self.read()
            except StoreUnavailable as error:
                log.debug("the jobs' descriptions can't be read: %s", error)
            await asyncio.sleep(REFRESH_SECONDS)


def _output(job: str, text: str) -> Output:
    output = Output.model_validate_json(text)
    if output.job != job:
        raise ValueError(f"it describes another job, {output.job}")
    return output


def _why(error: ValueError) -> str:
    """Which fields are wrong, and how, in one line."""
    if not isinstance(error, ValidationError):
        return str(error)
    return "; ".join(
        ": ".join(filter(None, (".".join(map(str, one["loc"])), one["msg"])))
        for one in error.errors(include_url=False, include_input=False, include_context=False)
    )
