"""The HTTP interface: a request's records are checked, written to Kafka, and then answered for."""

import asyncio
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from functools import partial
from typing import Annotated

from fastapi import Depends, FastAPI, Request, Response
from fastapi.security import APIKeyQuery, HTTPAuthorizationCredentials, HTTPBearer
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import JSONResponse

from millrace_collector import answers, intake, openapi, zookeeper
from millrace_collector.answers import Answer, Problem
from millrace_collector.delivery import Delivery, connect
from millrace_collector.following import Following
from millrace_collector.intake import Intake
from millrace_collector.limits import Sender, Senders
from millrace_collector.metrics import Metrics, Timed
from millrace_collector.refusals import (
    BadParameter,
    KeysUnknown,
    NoSuchStream,
    OtherStream,
    Refusal,
    UnknownKey,
)
from millrace_collector.settings import Settings, load_settings
from millrace_shared.keys import FileStore, Follower, Key

DESCRIPTION = """\
Events in. The answer tells of each record whether Kafka has it on all its in-sync replicas: what it
tells as written is counted once, whatever fails. Send again only what isn't.
"""
WITH_PLACES = ("return", "representation")  # RFC 7240
DAY_SECONDS = 86_400


class Collector:
    """What requests need."""

    def __init__(
        self, settings: Settings, delivery: Delivery, follower: Follower, now: Callable[[], float]
    ) -> None:
        self.streams = settings.streams
        self.delivery = delivery
        self.follower = follower
        self.following = Following(follower, settings.keys_look_seconds, time.time)
        self.intake = Intake(settings, delivery)
        self.metrics = Metrics(
            settings.streams.keys(), self.intake.buffer, delivery, follower, self.following
        )
        self._again_seconds = settings.keys_look_seconds
        self._senders = Senders(settings, now)

    def key_of(self, secret: str) -> tuple[str, Key]:
        """The key of that secret, and its name. Raises UnknownKey, KeysUnknown."""
        if self.follower.keys is None:
            raise KeysUnknown(
                "No key is known here yet; send all again.",
                retry_after_seconds=self._again_seconds,
            )
        if found := self.follower.find(secret):
            return found
        raise UnknownKey("Send your key as `Authorization: Bearer KEY`, a public one as ?key=KEY.")

    def sender_of(self, name: str, key: Key, stream: str, address: str) -> Sender:
        """Who sends with that key from that address. Raises OtherStream."""
        if not key.may_write(stream):
            raise OtherStream(f"This key may not write the stream {stream}; ask the operator.")
        return self._senders.of(name, key, self.follower.doors, address)


async def collector_of(request: Request) -> Collector:
    return request.app.state.collector


CollectorDep = Annotated[Collector, Depends(collector_of)]
Bearer = HTTPBearer(scheme_name="bearer", auto_error=False)
InAddress = APIKeyQuery(
    name="key",
    scheme_name="key",
    auto_error=False,
    description="For who can't send headers, as a page's beacon: public keys alone.",
)


async def key_of(
    request: Request,
    collector: CollectorDep,
    bearer: Annotated[HTTPAuthorizationCredentials | None, Depends(Bearer)],
    in_address: Annotated[str | None, Depends(InAddress)],
) -> tuple[str, Key]:
    """Who sends, before anything is read of what it sends."""
    if unknown := request.query_params.keys() - {InAddress.model.name}:
        raise BadParameter(f"There is no parameter {min(unknown)}; key is the only one.")
    if bearer:
        return collector.key_of(bearer.credentials)
    name, key = collector.key_of(in_address or "")
    if key.client_events_per_second is None:  # whatever has seen the address knows it now
        raise UnknownKey("This key is no public one: send it as `Authorization: Bearer KEY`.")
    return name, key


KeyDep = Annotated[tuple[str, Key], Depends(key_of)]


def preferences(lines: Sequence[str]) -> Iterator[tuple[str, str]]:
    """Names and values of the headers Prefer, without what qualifies them."""
    for one in ",".join(lines).split(","):
        name, _, value = one.partition(";")[0].partition("=")
        yield name.strip().lower(), value.strip().strip('"')


def sending_to(stream: str) -> Callable[..., Awaitable[Response]]:
    """The route of a stream."""

    async def send(
        collector: CollectorDep,
        key: KeyDep,
        request: Request,
    ) -> Response:
        """Records, each as the stream is declared.

        JSON (an object, or an array of them), lines of JSON, or CloudEvents 1.0 in any of their
        three modes, with the record as their data. Content-Encoding may be gzip or zstd.
        """
        address = request.client.host if request.client else ""
        sender = collector.sender_of(*key, stream, address)
        sent = intake.Request(request.headers, request.stream())
        fates = await collector.intake.take(stream, sender, sent)
        collector.metrics.became(stream, sender.name, fates)
        with_places = WITH_PLACES in preferences(request.headers.getlist("Prefer"))
        answer = answers.of_records(fates, with_places)
        applied = {"Preference-Applied": "=".join(WITH_PLACES)} if with_places else {}
        return _respond(request, answer, applied)

    return send


async def no_such_stream(collector: CollectorDep, _: KeyDep, stream: str) -> Response:
    names = ", ".join(sorted(collector.streams))
    raise NoSuchStream(f"There is no stream {stream} that takes JSON; there is {names}.")


async def healthz() -> Response:
    """The process answers."""
    return Response()


async def readyz(collector: CollectorDep) -> Response:
    """Kafka answers, too."""
    if await collector.delivery.is_reachable():
        return JSONResponse({"status": "ok"})
    return JSONResponse({"status": "Kafka can't be reached"}, status_code=503)


async def refused(request: Request, error: Refusal) -> Response:
    headers = {"WWW-Authenticate": "Bearer"} if isinstance(error, UnknownKey) else {}
    return _respond(request, answers.of_refusal(error), headers)


async def no_route(request: Request, error: HTTPException) -> Response:
    detail = f"{request.method} {request.url.path}: /openapi.json describes what there is."
    problem = Problem(title=error.detail, status=error.status_code, detail=detail)
    return _respond(request, Answer(error.status_code, problem=problem), error.headers)


def _respond(
    request: Request, answer: Answer, headers: Mapping[str, str] | None = None
) -> Response:
    if answer.problem:
        request.app.state.collector.metrics.refused(request.url.path, answer.problem.title)
    return answer.response(headers)


def create_app(
    settings: Settings,
    delivery: Delivery,
    follower: Follower,
    now: Callable[[], float] = time.monotonic,
) -> FastAPI:
    """The application; ``now`` counts the seconds by which keys' rates are judged."""
    collector = Collector(settings, delivery, follower, now)

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        follower.open()
        following = asyncio.create_task(collector.following.go_on())
        with collector.metrics.served(settings.metrics_port):
            yield
        following.cancel()
        with suppress(asyncio.CancelledError):
            await following
        await delivery.close()  # requests have been answered by now
        collector.intake.close()

    app = FastAPI(
        lifespan=lifespan,
        title="Millrace collector",
        version="1",
        description=DESCRIPTION,
        docs_url=None,  # its scripts would come from the Internet
        redoc_url=None,
        openapi_url=None,  # it would be made anew for each who asks
    )
    app.state.collector = collector
    app.add_exception_handler(Refusal, refused)  # type: ignore[arg-type]
    app.add_exception_handler(HTTPException, no_route)  # type: ignore[arg-type]
    _add_routes(app, settings)
    app.add_middleware(Timed, metrics=collector.metrics)
    if settings.allowed_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=settings.allowed_origins,
            allow_methods=["POST"],
            allow_headers=["*"],
            expose_headers=["Retry-After"],
            max_age=DAY_SECONDS,
        )
    return app


def _add_routes(app: FastAPI, settings: Settings) -> None:
    for stream in settings.streams:
        app.add_api_route(
            f"/v1/{stream}",
            sending_to(stream),
            methods=["POST"],
            summary=f"Send {stream}",
            operation_id=f"send_{stream}",
            response_class=Response,
            responses=openapi.responses(),
            openapi_extra=openapi.request(stream, prefer="=".join(WITH_PLACES)),
        )
    described = partial(_described, openapi.document(app, settings.streams))
    for path, answer in (
        ("/healthz", healthz),
        ("/readyz", readyz),
        ("/openapi.json", described),
    ):
        app.add_api_route(path, answer, methods=["GET", "HEAD"], include_in_schema=False)
    app.add_api_route("/v1/{stream}", no_such_stream, methods=["POST"], include_in_schema=False)


async def _described(document: bytes) -> Response:
    return Response(document, media_type=answers.JSON)


def serve() -> FastAPI:
    """The application over Kafka: ``uvicorn --factory millrace_collector.app:serve``."""
    settings = load_settings()
    client = zookeeper.connect(settings.zookeeper)
    client.start_async()
    registry = zookeeper.ZookeeperRegistry(client, settings.znodes, settings.host)
    store = FileStore(settings.keys_file)
    follower = Follower(registry, store, settings.all_doors, time.time)
    return create_app(settings, Delivery(partial(connect, settings.kafka)), follower)
