"""What operators look at: pictures over time, what explains their gaps, and alerts that fire.

Panels have names, and their queries come with the configuration: nobody asks Prometheus anything
else through here, for no other range, and no more often than there is something new.
"""

import asyncio
import math
import re
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from enum import Enum
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Depends, FastAPI, Query, Request
from fastapi.responses import FileResponse
from pydantic import BaseModel, Field

from millrace_api.access import ANYBODY, needs
from millrace_api.models import Behind, Problem
from millrace_api.planes import IntendedJobs
from millrace_api.problems import NotFound
from millrace_api.prometheus import Prometheus, PrometheusUnavailable
from millrace_api.ranges import short
from millrace_api.settings import Settings
from millrace_api.shared import Shared, each

PAGE = Path(__file__).with_name("page") / "operations.html"
LABEL = re.compile(r"\{\{(\w+)\}\}")
# What one answer has at most: a cluster of a hundred hosts has its disks, and a browser its limits.
MOST_SERIES = 200
MOST_EVENTS = 200
ALERTS_SECONDS = 5.0
# A picture is no older than this, however long its steps: what began just now belongs to a week.
NEWS_SECONDS = 60
# configs/alerts/promises.yaml
DISABLED = "millrace:job:disabled"
DEPLOYED = "millrace:job:deployed"
# By the gateways (millrace_gateway/metrics.py), of which one may have begun to look later.
BEHIND = (
    "min by (name) (millrace_job_behind_since_timestamp_seconds)",
    "max by (name) (millrace_job_lag_records)",
    "max by (name) (millrace_job_catch_up_seconds)",
)
BEHIND_SECONDS = 5.0
BEHIND_WAIT_SECONDS = 0.5  # to hear who is; what else is told of jobs mustn't wait for it
SEVERITIES = ("critical", "warning", "info")


class LookBack(Enum):
    """How far back, and the time from one point to the next. Both in seconds."""

    M15 = "15m", 900, 15
    H1 = "1h", 3600, 30
    H6 = "6h", 21600, 120
    H24 = "24h", 86400, 300
    D7 = "7d", 604800, 1800

    def __new__(cls, text: str, length: int, step: int) -> "LookBack":
        made = object.__new__(cls)
        made._value_ = text
        made.length, made.step = length, step
        return made

    length: int
    step: int

    @property
    def news(self) -> int:
        """After how many seconds there is something new to ask for."""
        return min(self.step, NEWS_SECONDS)


@dataclass(frozen=True)
class Period:
    """From start to end in whole steps, both included, in seconds since 1970."""

    start: int
    end: int
    step: int

    @classmethod
    def until(cls, now: float, over: LookBack) -> "Period":
        end = int(now) // over.news * over.news
        return cls(end - over.length, end, over.step)

    @property
    def points(self) -> int:
        return (self.end - self.start) // self.step + 1


class PanelQuery(BaseModel):
    legend: str
    expr: str


class Panel(BaseModel):
    name: str
    title: str
    why: str
    unit: str
    kind: Literal["lines", "strips"]
    queries: list[PanelQuery]


class Group(BaseModel):
    title: str
    panels: list[Panel]


class MarkQuery(BaseModel):
    """A sample's value is the moment of an event."""

    kind: str
    why: str
    text: str
    expr: str


class Content(BaseModel):
    """configs/panels.yaml for this environment; ``runbooks`` by alert."""

    scrape_seconds: int
    runbooks: dict[str, str]
    groups: list[Group]
    marks: list[MarkQuery]


class PanelSummary(BaseModel):
    name: str
    title: str
    why: str
    unit: str
    kind: str


class GroupSummary(BaseModel):
    title: str
    panels: list[PanelSummary]


class MarkSummary(BaseModel):
    kind: str
    why: str


class Overview(BaseModel):
    """What there is to look at, and how far back."""

    ranges: list[str]
    groups: list[GroupSummary]
    marks: list[MarkSummary]


class Series(BaseModel):
    """A value for each step from start to end; null where nothing was told."""

    legend: str
    values: list[float | None]


class Picture(BaseModel):
    """A panel's series over one period, a point for each step; start and end are points."""

    panel: str
    unit: str
    start: datetime
    end: datetime
    step_seconds: int
    series: list[Series]
    left_out: int = Field(description=f"Series beyond the first {MOST_SERIES}.")


class OperationsEvent(BaseModel):
    """``runbook`` is the page of an alert."""

    at: datetime
    kind: str
    text: str
    runbook: str | None = None


class OperationsEvents(BaseModel):
    """The newest first."""

    start: datetime
    end: datetime
    events: list[OperationsEvent]
    left_out: int = Field(
        description=f"Older ones, beyond the newest {MOST_EVENTS}: a shorter range is without them."
    )


class Alert(BaseModel):
    name: str
    state: str
    severity: str
    since: datetime
    summary: str
    runbook: str | None


class Alerts(BaseModel):
    alerts: list[Alert]


class Operations:
    """Answers that are shared by all who ask for the same before there is something new."""

    def __init__(self, content: Content, prometheus: Prometheus) -> None:
        self.content = content
        self._prometheus = prometheus
        self._panels = {panel.name: panel for group in content.groups for panel in group.panels}
        self._asked = {over: Shared(keep_seconds=over.news) for over in LookBack}
        self._alerts = Shared(keep_seconds=ALERTS_SECONDS)
        self._behind = Shared(keep_seconds=BEHIND_SECONDS)

    def panel(self, name: str) -> Panel:
        if name not in self._panels:
            raise NotFound(f"no panel {short(name)}; /v1/operations lists them")
        return self._panels[name]

    async def picture(self, panel: Panel, over: LookBack, now: float) -> Picture:
        period = Period.until(now, over)
        key = (panel.name, period)
        return await self._asked[over].ask(key, partial(self._picture, panel, period))

    async def events(self, over: LookBack, now: float) -> OperationsEvents:
        period = Period.until(now, over)
        return await self._asked[over].ask(period, partial(self._events, period))

    async def alerts(self) -> Alerts:
        return await self._alerts.ask("alerts", self._firing)

    async def intended_jobs(self) -> IntendedJobs:
        """As operators want them; nothing is known while Prometheus doesn't answer."""
        try:
            found = await each(self._prometheus.now, [DEPLOYED, DISABLED])
        except PrometheusUnavailable:
            return IntendedJobs()
        return IntendedJobs(*({one["metric"]["name"] for one in answer} for answer in found))

    async def behind(self) -> dict[str, Behind]:
        """Jobs that are behind; none while Prometheus doesn't answer."""
        try:
            async with asyncio.timeout(BEHIND_WAIT_SECONDS):
                return await self._behind.ask("behind", self._ask_behind)
        except (PrometheusUnavailable, TimeoutError):
            return {}

    async def _ask_behind(self) -> dict[str, Behind]:
        found = await each(self._prometheus.now, BEHIND)
        since, records, seconds = (
            {one["metric"]["name"]: value for one in answer if math.isfinite(value := _value(one))}
            for answer in found
        )
        return {
            job: Behind(
                since=utc(at),
                records=None if job not in records else int(records[job]),
                level_in_seconds=seconds.get(job),
            )
            for job, at in since.items()
        }

    async def _picture(self, panel: Panel, period: Period) -> Picture:
        found = await each(lambda query: self._range(query.expr, period), panel.queries)
        series = [
            Series(legend=told(query.legend, one["metric"]), values=values(one["values"], period))
            for query, answer in zip(panel.queries, found, strict=True)
            for one in sorted(answer, key=lambda one: told(query.legend, one["metric"]))
        ]
        return Picture(
            panel=panel.name,
            unit=panel.unit,
            start=utc(period.start),
            end=utc(period.end),
            step_seconds=period.step,
            series=series[:MOST_SERIES],
            left_out=max(0, len(series) - MOST_SERIES),
        )

    async def _events(self, period: Period) -> OperationsEvents:
        queries = self.content.marks
        found = await each(lambda query: self._range(query.expr, period), queries)
        events = {
            (at, query.kind, told(query.text, one["metric"])): self._page_of(one["metric"])
            for query, answer in zip(queries, found, strict=True)
            for one in answer
            for at in moments(one["values"], period)
        }
        newest = sorted(events, reverse=True)[:MOST_EVENTS]
        return OperationsEvents(
            start=utc(period.start),
            end=utc(period.end),
            events=[
                OperationsEvent(at=utc(at), kind=kind, text=text, runbook=events[at, kind, text])
                for at, kind, text in newest
            ],
            left_out=len(events) - len(newest),
        )

    async def _firing(self) -> Alerts:
        alerts = [
            Alert(
                name=one["labels"]["alertname"],
                state=one["state"],
                severity=one["labels"].get("severity", ""),
                since=one["activeAt"],
                summary=one["annotations"].get("summary", ""),
                runbook=self._page_of(one["labels"]),
            )
            for one in await self._prometheus.alerts()
        ]
        return Alerts(alerts=sorted(alerts, key=_urgency))

    async def _range(self, expr: str, period: Period) -> list[dict[str, Any]]:
        query = timed(expr, period.step, self.content.scrape_seconds)
        return await self._prometheus.range(query, period.start, period.end, period.step)

    def _page_of(self, labels: Mapping[str, str]) -> str | None:
        runbook = self.content.runbooks.get(labels.get("alertname", ""))
        return runbook and f"/runbooks/{runbook}"


def _value(sample: Mapping[str, Any]) -> float:
    return float(sample["value"][1])


def utc(seconds: float) -> datetime:
    """Prometheus has seconds since 1970."""
    return datetime.fromtimestamp(seconds, UTC)


def _urgency(alert: Alert) -> tuple[bool, int, datetime]:
    rank = SEVERITIES.index(alert.severity) if alert.severity in SEVERITIES else len(SEVERITIES)
    return alert.state != "firing", rank, alert.since


def timed(expr: str, step: int, scrape: int) -> str:
    """Grafana's words as it replaces them: a rate needs two scrapes, even if one is missing."""
    rate = max(step + scrape, 4 * scrape)
    return expr.replace("$__rate_interval", f"{rate}s").replace("$__interval", f"{step}s")


def told(text: str, labels: Mapping[str, str]) -> str:
    """A legend with its labels' values; nothing for a label that isn't there."""
    return " ".join(LABEL.sub(lambda found: labels.get(found[1], ""), text).split())


def values(samples: list[tuple[float, str]], period: Period) -> list[float | None]:
    """One for each step; what is no number, such as 0/0, is no value."""
    found: list[float | None] = [None] * period.points
    for at, text in samples:
        value = float(text)
        if math.isfinite(value):
            found[round((at - period.start) / period.step)] = value
    return found


def moments(samples: list[tuple[float, str]], period: Period) -> Iterator[float]:
    """Those of the period that the samples tell of, to the second, each once."""
    for text in dict.fromkeys(text for _, text in samples):
        moment = float(text)
        if period.start <= moment <= period.end:
            yield float(round(moment))


async def operations_of(request: Request) -> Operations:
    return request.app.state.operations


OperationsDep = Annotated[Operations, Depends(operations_of)]
Over = Annotated[LookBack, Query(alias="range", description="How far back.")]
NOT_FOUND: dict[int | str, dict[str, Any]] = {
    404: {"model": Problem, "description": "No such panel; /v1/operations lists them."}
}
router = APIRouter(dependencies=[needs("operations")])
page_router = APIRouter(dependencies=[ANYBODY])


@router.get("/v1/operations", tags=["operations"])
async def overview(operations: OperationsDep) -> Overview:
    """The panels and the kinds of events, and what each is for."""
    content = operations.content.model_dump()
    return Overview(
        ranges=[over.value for over in LookBack],
        groups=content["groups"],
        marks=content["marks"],
    )


@router.get("/v1/operations/panels/{name}", tags=["operations"], responses=NOT_FOUND)
async def picture(operations: OperationsDep, name: str, over: Over = LookBack.H1) -> Picture:
    """A panel's series up to now, as an edge host's Prometheus has them."""
    return await operations.picture(operations.panel(name), over, time.time())


@router.get("/v1/operations/events", tags=["operations"])
async def events(operations: OperationsDep, over: Over = LookBack.H1) -> OperationsEvents:
    """What explains gaps: take-overs, restarts, deployments, alerts, drills. The newest first."""
    return await operations.events(over, time.time())


@router.get("/v1/operations/alerts", tags=["operations"])
async def alerts(operations: OperationsDep) -> Alerts:
    """Those that fire, and those that are about to. The most urgent first."""
    return await operations.alerts()


@page_router.get("/operations", include_in_schema=False)
async def page() -> FileResponse:
    return FileResponse(PAGE)


def install(app: FastAPI, settings: Settings) -> None:
    prometheus = Prometheus(
        settings.prometheus, settings.prometheus_timeout_seconds, settings.prometheus_places
    )
    content = Content.model_validate_json(settings.panels.read_bytes())
    app.state.operations = Operations(content, prometheus)
    app.include_router(router)
    app.include_router(page_router)
