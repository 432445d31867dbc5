"""What Prometheus is told. It has a port of its own, because the collector's is the producers'."""

import time
from collections.abc import Iterator
from contextlib import contextmanager

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    ProcessCollector,
    start_http_server,
)
from starlette.types import ASGIApp, Message, Receive, Scope, Send

# To the answer, which waits for Kafka.
BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2, 5, 10, 20)
NO_STREAM = "none"  # no address of ours


class Metrics:
    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        self.events = Counter(
            "millrace_collector_events",
            "Acknowledged.",
            ["stream", "key"],
            registry=self.registry,
        )
        self.requests = Histogram(
            "millrace_collector_request_seconds",
            "Until it was answered.",
            ["stream", "status"],
            buckets=BUCKETS,
            registry=self.registry,
        )
        self.buffer = Gauge(
            "millrace_collector_buffer_bytes",
            "Held by requests that wait for their answers.",
            registry=self.registry,
        )
        self.producers = Gauge(
            "millrace_collector_producers",
            "Producers since the start; each but the first took over from one that couldn't go on.",
            registry=self.registry,
        )

    @contextmanager
    def served(self, port: int) -> Iterator[None]:
        server, thread = start_http_server(port, registry=self.registry)
        try:
            yield
        finally:
            server.shutdown()
            server.server_close()
            thread.join()


class Timed:
    """Tells how long each request waited for its answer."""

    def __init__(self, app: ASGIApp, metrics: Metrics, streams: set[str]) -> None:
        self._app = app
        self._metrics = metrics
        self._streams = streams

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "POST":
            await self._app(scope, receive, send)
            return
        began = time.perf_counter()

        async def observed(message: Message) -> None:
            if message["type"] == "http.response.start":
                stream = scope["path"].rpartition("/")[2]
                known = stream if stream in self._streams else NO_STREAM
                seconds = time.perf_counter() - began
                self._metrics.requests.labels(known, message["status"]).observe(seconds)
            await send(message)

        await self._app(scope, receive, observed)
