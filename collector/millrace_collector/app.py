"""The HTTP interface: a request's records are checked, written to Kafka, and then acknowledged."""

import asyncio
import math
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from functools import partial
from typing import Annotated

from fastapi import APIRouter, Depends, FastAPI, Header, Query, Request, Response
from fastapi.responses import JSONResponse
from pydantic import BaseModel
from starlette.requests import ClientDisconnect

from millrace_collector import bodies
from millrace_collector.delivery import Delivery, Place, connect
from millrace_collector.limits import Buffer, Key, Keys, Share
from millrace_collector.metrics import Metrics, Timed
from millrace_collector.records import Checker
from millrace_collector.refusals import NoSuchStream, Refusal, TooLarge, TooSlow, UnknownKey
from millrace_collector.settings import Settings, load_settings

DESCRIPTION = """\
Events in. All records of a request are acknowledged, or none: 200 means that Kafka has written each
of them to all its in-sync replicas. After any other answer, or none, send the whole request again
(429 and 503 say when, as `Retry-After`); an event's id tells that it is the same one.
"""
WITH_PLACES = "return=representation"  # RFC 7240
# What a record costs beside its bytes while it waits: objects of Python and of librdkafka.
RECORD_OVERHEAD_BYTES = 512


class Acknowledged(BaseModel):
    """``places`` are each record's partition and offset, for who asks for them."""

    acknowledged: int
    places: list[Place] | None = None


class Problem(BaseModel):
    """RFC 9457. ``record`` is the number of the record at fault, from 1."""

    title: str
    status: int
    detail: str
    record: int | None = None


class Collector:
    """What a request needs."""

    def __init__(self, settings: Settings, delivery: Delivery) -> None:
        self.settings = settings
        self.delivery = delivery
        self.keys = Keys(settings.keys, settings.burst_seconds)
        self.buffer = Buffer(settings.buffer_bytes)
        self.checkers = {name: Checker(stream) for name, stream in settings.streams.items()}
        self.metrics = Metrics()
        self.metrics.buffer.set_function(lambda: self.buffer.used)
        self.metrics.producers.set_function(lambda: delivery.producers)

    async def collect(self, stream: str, key: Key, request: Request) -> list[Place]:
        """Where Kafka has the request's records, each of them acknowledged. Raises Refusal."""
        if stream not in self.checkers:
            names = ", ".join(sorted(self.checkers))
            raise NoSuchStream(f"There is no stream {stream} that takes JSON; there is {names}.")
        with self.buffer.share() as share:
            body = await self._body(request, share)
            sent = bodies.records(body, request.headers.get("content-type", ""))
            records = self.checkers[stream].keyed(sent, time.time())
            share.take(len(records) * RECORD_OVERHEAD_BYTES)
            key.charge(len(records))
            places = await self.delivery.deliver(self.settings.streams[stream].topic, records)
        self.metrics.events.labels(stream, key.name).inc(len(records))
        return places

    async def _body(self, request: Request, share: Share) -> bytes:
        """All of it, decompressed, and no more than is allowed, nor later."""
        most, seconds = self.settings.request_bytes, self.settings.receive_seconds
        body = bytearray()
        try:
            async with asyncio.timeout(seconds):
                async for chunk in request.stream():
                    if len(body) + len(chunk) > most:
                        raise TooLarge(
                            f"The body has more than {most:,} bytes; send fewer records."
                        )
                    share.take(len(chunk))
                    body += chunk
        except (TimeoutError, ClientDisconnect):
            raise TooSlow(f"The body didn't come within {seconds:g} s.") from None
        encoding = request.headers.get("content-encoding", "").strip().lower()
        content = bodies.decompressed(bytes(body), encoding, most)
        share.take(len(content))  # once more: librdkafka has a copy of its own
        return content


async def collector_of(request: Request) -> Collector:
    return request.app.state.collector


CollectorDep = Annotated[Collector, Depends(collector_of)]


async def key_of(
    collector: CollectorDep,
    authorization: Annotated[str, Header(description="`Bearer KEY`.")] = "",
    key: Annotated[str, Query(description="For who can't send headers, as a page.")] = "",
) -> Key:
    """Who sends, before anything is read of what it sends."""
    scheme, _, secret = authorization.partition(" ")
    found = collector.keys.find(secret.strip() if scheme.lower() == "bearer" else key)
    found.admit()
    return found


router = APIRouter()


@router.post(
    "/v1/{stream}",
    response_model_exclude_none=True,
    openapi_extra={"requestBody": {"content": {bodies.JSON: {}}}},
)
async def collect(
    stream: str,
    collector: CollectorDep,
    key: Annotated[Key, Depends(key_of)],
    request: Request,
    prefer: Annotated[str, Header(description=f"`{WITH_PLACES}`: tell each one's place.")] = "",
) -> Acknowledged:
    """Records of a stream such as `events`, each as its stream is declared.

    JSON (an object or an array of them), NDJSON, or CloudEvents 1.0 as JSON, one or a batch, with
    the record as their data; gzip as Content-Encoding, if you like.
    """
    places = await collector.collect(stream, key, request)
    return Acknowledged(acknowledged=len(places), places=places if prefer == WITH_PLACES else None)


@router.get("/healthz", include_in_schema=False)
async def healthz() -> Response:
    """The process answers."""
    return Response()


@router.get("/readyz", include_in_schema=False)
async def readyz(collector: CollectorDep) -> JSONResponse:
    """Kafka answers, too."""
    if await collector.delivery.is_reachable():
        return JSONResponse({"status": "ok"})
    return JSONResponse({"status": "Kafka can't be reached"}, status_code=503)


async def refused(_: Request, error: Refusal) -> JSONResponse:
    problem = Problem(
        title=error.title, status=error.status, detail=str(error), record=error.record
    )
    headers = {"WWW-Authenticate": "Bearer"} if isinstance(error, UnknownKey) else {}
    if error.retry_after_seconds:
        headers["Retry-After"] = str(math.ceil(error.retry_after_seconds))
    return JSONResponse(
        problem.model_dump(exclude_none=True),
        status_code=error.status,
        media_type="application/problem+json",
        headers=headers,
    )


def create_app(settings: Settings, delivery: Delivery) -> FastAPI:
    collector = Collector(settings, delivery)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        with collector.metrics.served(settings.metrics_port):
            yield
        await delivery.close()  # requests have been answered by now

    app = FastAPI(
        lifespan=lifespan,
        title="Millrace collector",
        version="1",
        description=DESCRIPTION,
        docs_url=None,  # its scripts would come from the Internet
        redoc_url=None,
        responses={status: {"model": Problem} for status in (401, 413, 422, 429, 503)},
    )
    app.state.collector = collector
    app.add_exception_handler(Refusal, refused)  # type: ignore[arg-type]
    app.add_middleware(Timed, metrics=collector.metrics, streams=set(settings.streams))
    app.include_router(router)
    return app


def serve() -> FastAPI:
    """The application over Kafka: ``uvicorn --factory millrace_collector.app:serve``."""
    settings = load_settings()
    return create_app(settings, Delivery(partial(connect, settings.kafka)))
