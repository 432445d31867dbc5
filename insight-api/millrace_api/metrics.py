"""What Prometheus is told: how far the jobs are for who reads here, and how this API answers.

A scrape asks nobody. It gets what the last look at the store found; while the store is away that
look stays, so ages grow as they do for a reader. Times are seconds since 1970, as is usual there:
``time() - millrace_job_updated_timestamp_seconds`` is how old a job's word is.

Jobs are told apart by the label ``name``: ``job`` is Prometheus' own word for a kind of target.

It has a port of its own, because the API's is the public's, and a thread of its own.
"""

import asyncio
import logging
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    start_http_server,
)
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.registry import Collector
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from millrace_api.hub import Hub
from millrace_api.ranges import HOUR, MINUTE, Span, floor
from millrace_api.store import JobProgress, JobWork, Store, StoreUnavailable
from millrace_shared.keys import LOOKED_AT, Follower

log = logging.getLogger(__name__)

LOOK_SECONDS = 5.0
RECENT = timedelta(minutes=10)
# To the first byte of the answer. One second is what readers are promised.
BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2, 5, 10)
# Of refusals (`access.Refused`): each tells zero from the start.
REASONS = ("no_key", "unknown_key", "token", "scope", "origin", "keys_unknown", "undeclared")
NO_ROUTE = "none"  # refused before it came to one, a file of the page, or no address of ours


@dataclass(frozen=True)
class Look:
    """What was last found in the store. ``answered`` is whether the last try found anything."""

    answered: bool = False
    jobs: Sequence[JobProgress] = ()
    work: Sequence[JobWork] = ()
    quarantined: Mapping[str, int] = field(default_factory=dict)
    dead_letters: Mapping[str, int] = field(default_factory=dict)
    page_error: int = 0
    viewers: int = 0


class Metrics:
    """``look`` is replaced as a whole: the scraper's thread reads it at any time."""

    def __init__(self) -> None:
        self.look = Look()
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self.registry.register(_Looked(self))
        self._requests = Histogram(
            "millrace_api_request_seconds",
            "Until an answer began.",
            ["route", "status"],
            buckets=BUCKETS,
            registry=self.registry,
        )

        self._unexpected = Counter(
            "millrace_api_unexpected_errors",
            "What nobody foresaw: answers of 500, and work in the background that began again.",
            ["where"],
            registry=self.registry,
        )

        self._refused = Counter(
            "millrace_api_refused_requests",
            "Of who had no valid key, or one without the scope.",
            ["reason"],
            registry=self.registry,
        )
        self._keys_looked = Gauge(
            LOOKED_AT,
            "When ZooKeeper last told the keys; 0 if it hasn't since the start.",
            registry=self.registry,
        )
        for reason in REASONS:
            self._refused.labels(reason)

    def expect(self, *wheres: str) -> None:
        """Each tells zero until something fails: a rate needs a value before."""
        for where in wheres:
            self._unexpected.labels(where)

    def failed(self, where: str) -> None:
        self._unexpected.labels(where).inc()

    def refused(self, reason: str) -> None:
        self._refused.labels(reason).inc()

    def tell_of(self, keys: Follower) -> None:
        """When each key ends, and when it was last used here."""
        self.registry.register(_OfKeys(keys))

    def looked_at_keys(self) -> None:
        self._keys_looked.set_to_current_time()

    def answered(self, scope: Scope, status: int, seconds: float) -> None:
        route = getattr(scope.get("route"), "path", NO_ROUTE)
        self._requests.labels(route, status).observe(seconds)

    async def keep_looking(self, store: Store, hub: Hub) -> None:
        """Without an end."""
        while True:
            try:
                self.look = await look(store, hub, datetime.now(UTC))
            except Exception as error:
                self.look = replace(self.look, answered=False, viewers=hub.viewers())
                if not isinstance(error, StoreUnavailable):
                    raise
                log.debug("nothing new for metrics: %s", error)
            await asyncio.sleep(LOOK_SECONDS)

    @contextmanager
    def served(self, port: int) -> Iterator[int]:
        """At /metrics of this port, or of one that is free for 0; gives which."""
        server, thread = start_http_server(port, registry=self.registry)
        try:
            yield server.server_port
        finally:
            server.shutdown()
            server.server_close()
            thread.join()


async def look(store: Store, hub: Hub, now: datetime) -> Look:
    """Five small reads. Raises StoreUnavailable."""
    end = floor(now, MINUTE) + MINUTE
    return Look(
        answered=True,
        jobs=await store.progress(),
        work=await store.work(),
        quarantined=await store.quarantined(),
        dead_letters=await store.dead_letter_counts(Span(end - RECENT, end)),
        page_error=await store.page_error(floor(now, HOUR)),
        viewers=hub.viewers(),
    )


class _OfKeys(Collector):
    def __init__(self, follower: Follower) -> None:
        self._follower = follower

    def collect(self) -> Iterator[Metric]:
        for name, times in self._follower.moments().items():
            metric = GaugeMetricFamily(name, "Of a key, at this door.", labels=["key"])
            for key, at in times.items():
                metric.add_metric([key], at)
            yield metric


class _Looked(Collector):
    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def describe(self) -> list[Metric]:
        return []  # or it would be collected once to find its names

    def collect(self) -> Iterator[Metric]:
        return families(self._metrics.look)


def families(look: Look) -> Iterator[Metric]:
    """A look in Prometheus' terms."""
    yield GaugeMetricFamily(
        "millrace_api_store_up", "Whether the store answered the last look.", int(look.answered)
    )
    yield GaugeMetricFamily(
        "millrace_api_stream_clients", "Who follow the live stream.", look.viewers
    )
    yield GaugeMetricFamily(
        "millrace_pages_error",
        "By how much the views of a page of this hour may be off.",
        look.page_error,
    )
    yield from _of_progress(look.jobs)
    yield from _of_work(look.work)
    yield _labelled(
        "millrace_job_quarantined_records", "Left out by the job.", "name", look.quarantined
    )
    yield _labelled(
        "millrace_dead_letters_recent",
        f"Records of the last {RECENT.seconds // 60} minutes that were no valid event.",
        "reason",
        look.dead_letters,
    )


def _of_progress(jobs: Sequence[JobProgress]) -> Iterator[Metric]:
    times = {
        "updated": "The job's last heartbeat.",
        "watermark": "No event before it is waited for.",
        "max_event_time": "The newest event in its results.",
    }
    for name, what in times.items():
        moments = {job.job: getattr(job, name) for job in jobs}
        known = {job: moment.timestamp() for job, moment in moments.items() if moment}
        yield _labelled(f"millrace_job_{name}_timestamp_seconds", what, "name", known)
    figures = {
        "epoch": "Rises with each driver that leads.",
        "input_rows_per_second": "Of its last batch.",
    }
    for name, what in figures.items():
        yield _labelled(
            f"millrace_job_{name}", what, "name", {job.job: getattr(job, name) for job in jobs}
        )
    versions = GaugeMetricFamily(
        "millrace_job_info", "The version that writes.", labels=["name", "version"]
    )
    for job in jobs:
        versions.add_metric([job.job, job.version], 1)
    yield versions


def _of_work(work: Sequence[JobWork]) -> Iterator[Metric]:
    """What the driver that leads has done; each starts at zero."""
    for name, what in {
        "batches": "Batches that had records.",
        "batch_seconds": "How long they took.",
        "late_events": "Events that came after their window was closed.",
    }.items():
        family = CounterMetricFamily(f"millrace_job_{name}", what, labels=["name"])
        for done in work:
            family.add_metric([done.job], getattr(done, name))
        yield family


def _labelled(name: str, what: str, label: str, values: Mapping[str, float]) -> Metric:
    family = GaugeMetricFamily(name, what, labels=[label])
    for value_of, value in values.items():
        family.add_metric([value_of], value)
    return family


class Timed:
    """Tells how long each request waited for its answer to begin."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        began = time.perf_counter()

        async def observed(message: Message) -> None:
            if message["type"] == "http.response.start":
                self._metrics.answered(scope, message["status"], time.perf_counter() - began)
            await send(message)

        await self._app(scope, receive, observed)
