"""What Prometheus is told. It has a port of its own, because the collector's is the producers'."""

import time
from collections import Counter as Counted
from collections.abc import Collection, Iterator, Sequence
from contextlib import contextmanager

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    start_http_server,
)
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.registry import Collector
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from millrace_collector.delivery import Delivery
from millrace_collector.fates import Failure, Fate
from millrace_collector.following import Following
from millrace_collector.limits import Buffer
from millrace_shared.keys import LOOKED_AT, Follower

# To the answer, which waits for Kafka.
BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2, 5, 10, 20)
NO_STREAM = "none"  # no address of ours
WRITTEN = "written"


class Metrics:
    def __init__(
        self,
        streams: Collection[str],
        buffer: Buffer,
        delivery: Delivery,
        follower: Follower,
        following: Following,
    ) -> None:
        self._streams = streams
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self.registry.register(OfKeys(follower))
        Gauge(
            LOOKED_AT,
            "When ZooKeeper last said which keys there are; 0 if never since the start.",
            registry=self.registry,
        ).set_function(lambda: following.looked_at)
        self._records = Counter(
            "millrace_collector_records",
            "Records by what became of them: written, refused for good, or Kafka's failures.",
            ["stream", "key", "fate"],
            registry=self.registry,
        )
        self._problems = Counter(
            "millrace_collector_problems",
            "Requests that were answered with a problem, by its title.",
            ["stream", "title"],
            registry=self.registry,
        )
        self._requests = Histogram(
            "millrace_collector_request_seconds",
            "Until it was answered.",
            ["stream", "status"],
            buckets=BUCKETS,
            registry=self.registry,
        )
        Gauge(
            "millrace_collector_buffer_bytes",
            "Held by requests that wait for their answers.",
            registry=self.registry,
        ).set_function(lambda: buffer.used)
        Gauge(
            "millrace_collector_buffer_size_bytes",
            "What requests may hold together.",
            registry=self.registry,
        ).set_function(lambda: buffer.size)
        Gauge(
            "millrace_collector_producers",
            "Producers since the start; each but the first took over from one that couldn't go on.",
            registry=self.registry,
        ).set_function(lambda: delivery.producers)

    def became(self, stream: str, key: str, fates: Sequence[Fate]) -> None:
        """What became of a request's records."""
        failed = Counted(fate.kind for fate in fates if isinstance(fate, Failure))
        self._records.labels(stream, key, WRITTEN).inc(len(fates) - failed.total())
        for kind, number in failed.items():
            self._records.labels(stream, key, kind.name.lower()).inc(number)

    def refused(self, path: str, title: str) -> None:
        self._problems.labels(self._stream_of(path), title).inc()

    def answered(self, path: str, status: int, seconds: float) -> None:
        self._requests.labels(self._stream_of(path), status).observe(seconds)

    def _stream_of(self, path: str) -> str:
        stream = path.rpartition("/")[2]
        return stream if stream in self._streams else NO_STREAM

    @contextmanager
    def served(self, port: int) -> Iterator[None]:
        server, thread = start_http_server(port, registry=self.registry)
        try:
            yield
        finally:
            server.shutdown()
            server.server_close()
            thread.join()


class OfKeys(Collector):
    """Keys by name: when each expires, and when it was last used at this door since its start."""

    def __init__(self, follower: Follower) -> None:
        self._follower = follower

    def collect(self) -> Iterator[GaugeMetricFamily]:
        for name, times in self._follower.moments().items():
            metric = GaugeMetricFamily(name, "Of a key, at this door.", labels=["key"])
            for key, at in times.items():
                metric.add_metric([key], at)
            yield metric


class Timed:
    """Tells how long each request waited for its answer."""

    def __init__(self, app: ASGIApp, metrics: Metrics) -> None:
        self._app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        began = time.perf_counter()

        async def observed(message: Message) -> None:
            if message["type"] == "http.response.start":
                seconds = time.perf_counter() - began
                self._metrics.answered(scope["path"], message["status"], seconds)
            await send(message)

        await self._app(scope, receive, observed)
