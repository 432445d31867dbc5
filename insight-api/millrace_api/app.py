"""The HTTP interface. Every route checks its parameters, asks the store, and shapes the answer."""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime, timedelta
from functools import partial
from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, Depends, FastAPI, Header, Query, Request
from fastapi.responses import FileResponse, Response
from starlette.middleware.cors import CORSMiddleware
from starlette.middleware.gzip import GZipMiddleware
from starlette.types import Lifespan

from millrace_api import (
    cursors,
    declared,
    documentation,
    login,
    middleware,
    models,
    operations,
    problems,
    runbooks,
    session_routes,
    stream,
    zookeeper,
)
from millrace_api.access import ANYBODY, PublicFiles, ReaderDep, needs
from millrace_api.admission import Admission, Busy, RateLimit, TooMany
from millrace_api.client_identity import ClientDep
from millrace_api.coalescing import Coalesced
from millrace_api.cursors import Cursor, CursorText
from millrace_api.history import History
from millrace_api.hub import Hub
from millrace_api.identity import People, Readers, keep_looking
from millrace_api.live import Feed, RedisFeed
from millrace_api.metrics import Metrics, Timed
from millrace_api.outputs import Catalogue
from millrace_api.parameters import From, To, refuse_others
from millrace_api.planes import planes
from millrace_api.progress import TrafficJob, states_of
from millrace_api.ranges import HOUR, MINUTE, Window, parse_span
from millrace_api.settings import Settings, load_settings
from millrace_api.shared import Shared
from millrace_api.store import CassandraStore, Store, StoreUnavailable
from millrace_api.supervision import Work, in_background
from millrace_api.windows import Windows
from millrace_shared.keys import COPY, FileStore, Follower

DESCRIPTION = """\
Insights from the event stream. Times are ISO 8601 with a zone; a range is from ≤ time < to.
A window is provisional until `final` is true; its `version` grows with every change.
When the store has no quorum, or too much is asked at once, the answer is 503 with `Retry-After`;
who asks too often gets 429 with `Retry-After`. Asking again after it is safe.
Answers have an `ETag`: asked again with it as `If-None-Match`, the answer is 304 while nothing has
changed. HEAD is answered wherever GET is. A parameter that a call doesn't have is refused.
"""
LONGEST = {Window.MINUTE: timedelta(days=2), Window.HOUR: timedelta(days=31)}
LONGEST_TOTAL = timedelta(days=366)
LONGEST_TOP = timedelta(days=7)  # 168 partitions, each with all pages of an hour
LONGEST_DEAD_LETTERS = timedelta(days=2)
WINDOWS_PER_DAY_OF_LETTERS = 120  # thousands of samples; a day of 24 hours touches two dates
HEALTH_CHECKS = {"/healthz", "/readyz"}
READY_SECONDS = 1.0
LIVE_STREAM = "/v1/stream"
GZIP_BYTES = 1024  # below, an answer is one packet in any case
# A day of minutes takes a fifth of the time that the default takes, and a sixth more bytes.
GZIP_LEVEL = 4
# Files that are compressed anew for each who asks would cost more than any answer.
NOT_COMPRESSED = ("text/event-stream", "text/javascript", "text/css", "image/*")
PAGE = Path(__file__).with_name("page")

WindowSize = Annotated[Window, Query(description="Size of the windows.")]


class EventStream(Response):
    """Names the media type in the documentation."""

    media_type = "text/event-stream"


async def store_of(request: Request) -> Store:
    return request.app.state.store


async def feed_of(request: Request) -> Feed:
    return request.app.state.feed


async def hub_of(request: Request) -> Hub:
    return request.app.state.hub


async def history_of(request: Request) -> History:
    return request.app.state.history


async def windows_of(request: Request) -> Windows:
    return request.app.state.windows


async def shared_of(request: Request) -> Shared:
    return request.app.state.shared


async def settings_of(request: Request) -> Settings:
    return request.app.state.settings


StoreDep = Annotated[Store, Depends(store_of)]
FeedDep = Annotated[Feed, Depends(feed_of)]
HubDep = Annotated[Hub, Depends(hub_of)]
HistoryDep = Annotated[History, Depends(history_of)]
WindowsDep = Annotated[Windows, Depends(windows_of)]
SharedDep = Annotated[Shared, Depends(shared_of)]
SettingsDep = Annotated[Settings, Depends(settings_of)]


router = APIRouter()


@router.get("/v1/traffic", tags=["traffic"], dependencies=[needs("insights")])
async def traffic(
    start: From,
    end: To,
    windows: WindowsDep,
    client: ClientDep,
    window: WindowSize = Window.HOUR,
) -> models.Traffic:
    """Windows of one size, oldest first: 2 days of minutes or 31 days of hours at most.

    Windows in which nothing happened are absent.
    """
    span = parse_span(start, end, step=window.length, longest=LONGEST[window])
    async with client.lane(span.length // window.length):
        return await windows.of(window, span)


@router.get("/v1/traffic/total", tags=["traffic"], dependencies=[needs("insights")])
async def traffic_total(
    start: From, end: To, history: HistoryDep, client: ClientDep
) -> models.TrafficTotal:
    """A range as one figure, its ends whole minutes: 366 days at most.

    Whole hours are read as hours and only the edges as minutes; unique visitors are the union of
    all the windows' sketches, not a sum. Up to a second old.
    """
    span = parse_span(start, end, step=MINUTE, longest=LONGEST_TOTAL)
    return models.TrafficTotal.of(span, await history.total(span, client))


@router.get("/v1/pages/top", tags=["traffic"], dependencies=[needs("insights")])
async def top_pages(
    start: From,
    end: To,
    history: HistoryDep,
    client: ClientDep,
    k: Annotated[int, Query(ge=1, le=100, description="How many pages.")] = 10,
) -> models.TopPages:
    """The most viewed pages of a range, its ends whole hours: 7 days at most.

    Up to a second old.
    """
    span = parse_span(start, end, step=HOUR, longest=LONGEST_TOP)
    top = await history.top_pages(span, k, client)
    return models.TopPages(
        start=span.start,
        end=span.end,
        distinct_pages=top.distinct,
        pages=[models.Page(url=url, page_views=count) for url, count in top.pages],
        error=top.error,
        other_page_views=top.other,
        revision=top.revision,
    )


@router.get("/v1/dead-letters", tags=["quality"], dependencies=[needs("letters")])
async def dead_letters(
    request: Request,
    response: Response,
    start: From,
    end: To,
    store: StoreDep,
    client: ClientDep,
    limit: Annotated[int, Query(ge=0, le=100, description="How many to list.")] = 20,
    cursor: CursorText = None,
) -> models.DeadLetters:
    """Events that could not be read, by the time when Kafka received them: 2 days at most."""
    span = parse_span(start, end, step=MINUTE, longest=LONGEST_DEAD_LETTERS)
    question = ("dead letters", span)
    after = None if cursor is None else letter_place(Cursor.parse(cursor, question))
    async with client.lane(len(list(span.days())) * WINDOWS_PER_DAY_OF_LETTERS):
        found = await store.dead_letters(span)
    samples = [one for one in found.samples if after is None or one.place < after]
    following = None
    if 0 < limit < len(samples):
        received, letter = samples[limit - 1].place
        following = Cursor.text(question, received, [letter])
        response.headers["Link"] = cursors.link(request, following)
    return models.DeadLetters(
        start=span.start,
        end=span.end,
        count=sum(found.counts.values()),
        reasons=found.counts,
        dead_letters=[models.DeadLetterRecord.of(sample) for sample in samples[:limit]],
        next=following,
        complete=found.complete,
    )


def letter_place(cursor: Cursor) -> tuple[datetime, str]:
    (letter,) = cursor.key_of({"id": "string"})
    return cursor.at, letter


@router.get("/v1/late", tags=["quality"], dependencies=[needs("insights")])
async def late(start: From, end: To, store: StoreDep, client: ClientDep) -> models.Late:
    """Events that came after their window was final and are missing from it, by day."""
    span = parse_span(start, end, step=HOUR, longest=LONGEST[Window.HOUR])
    days = list(span.days())
    async with client.lane(len(days)):
        found = await store.late_events(days)
    return models.Late(
        start=span.start,
        end=span.end,
        days=[models.LateDay.of(day) for day in found],
    )


@router.get("/v1/extent", tags=["state"], dependencies=[needs("insights")])
async def extent(store: StoreDep, shared: SharedDep) -> models.Extent:
    """Where there is data: the first and the last window of each size. Up to a second old."""
    minutes, hours = await asyncio.gather(
        *(shared.ask(window, partial(store.extent, window)) for window in Window)
    )
    return models.Extent(
        minutes=minutes and models.Range.model_validate(minutes),
        hours=hours and models.Range.model_validate(hours),
    )


@router.get("/v1/progress", tags=["state"], dependencies=[needs("insights")])
async def progress(
    store: StoreDep, known: operations.OperationsDep, reader: ReaderDep
) -> models.Progress:
    """How far each job is (watermark, newest event, age of its last batch), what it does, and who
    is behind."""
    now = datetime.now(UTC)
    jobs, states, behind = await asyncio.gather(
        store.progress(), states_of(store, now), known.behind()
    )
    return models.Progress(
        jobs=[
            models.Job.of(job, states.get(job.job), reader, now, behind.get(job.job))
            for job in jobs
        ]
    )


@router.get("/v1/status", tags=["state"], dependencies=[needs("operations")])
async def status(
    store: StoreDep,
    feed: FeedDep,
    settings: SettingsDep,
    shared: SharedDep,
    known: operations.OperationsDep,
) -> models.Status:
    """The planes of the cluster as this API sees them, up to a second old."""
    found = await shared.ask(
        "planes", partial(planes, settings.kafka, store, feed, known.intended_jobs)
    )
    return models.Status(cluster=settings.cluster, planes=found)


@router.get(
    LIVE_STREAM, tags=["traffic"], response_class=EventStream, dependencies=[needs("insights")]
)
async def live_stream(
    hub: HubDep,
    settings: SettingsDep,
    client: ClientDep,
    reader: ReaderDep,
    last_event_id: Annotated[
        str | None, Header(description="Id of the last event seen, to go on from there.")
    ] = None,
) -> Response:
    """Server-sent events: `window` with a changed one-minute or one-hour window, `source` when the
    feed changes between Redis and polling the store, `resync` when events are missing because you
    read too slowly or were away for long: ask for your range again. Windows are whole values: one
    that comes twice is harmless.
    """
    if hub.viewers() >= settings.max_streams:
        raise Busy(f"{hub.viewers()} clients follow the stream already; try again later.")
    if hub.viewers(client.address) >= settings.client_streams:
        raise TooMany(f"{settings.client_streams} clients of your address follow it already.")
    return stream.LiveStream(
        hub, client.address, last_event_id, lambda: "insights" in reader.scopes_now()
    )


@router.get("/healthz", tags=["state"], dependencies=[ANYBODY])
async def healthz(response: Response) -> dict[str, str]:
    """The process answers."""
    response.headers["Cache-Control"] = "no-store"
    return {"status": "ok"}


@router.get("/readyz", tags=["state"], dependencies=[ANYBODY])
async def readyz(request: Request, response: Response, store: StoreDep) -> dict[str, str]:
    """A quorum of the store answers, or did within the last second."""
    response.headers["Cache-Control"] = "no-store"
    await request.app.state.readiness.ask("store", store.health)
    return {"status": "ok"}


@router.get("/", include_in_schema=False, dependencies=[ANYBODY])
async def page() -> FileResponse:
    return FileResponse(PAGE / "index.html")


def create_app(
    settings: Settings,
    store: Store,
    feed: Feed,
    keys: Follower,
    connections: Lifespan[FastAPI] | None = None,
    clock: Callable[[], float] = time.monotonic,
    people: People | None = None,
) -> FastAPI:
    """The application over any store and feed; ``connections`` are open for as long as it runs.

    ``keys`` are those of its readers, and ``people`` who comes by way of a load balancer that
    authenticates. ``clock`` counts the seconds by which clients' rates are judged.
    """
    hub = Hub(feed, store)
    metrics = Metrics()
    metrics.tell_of(keys)
    catalogue = Catalogue(store)
    background: dict[str, Work] = {
        "live stream": hub.run,
        "switches": hub.follow_switches,
        "descriptions": catalogue.keep_reading,
        "metrics": partial(metrics.keep_looking, store, hub),
        "keys": partial(keep_looking, keys, settings.keys_look_seconds, metrics.looked_at_keys),
    }
    metrics.expect("requests", "connection", *background)

    @asynccontextmanager
    async def lifespan(app: FastAPI) -> AsyncIterator[None]:
        async with AsyncExitStack() as stack:
            keys.open()
            if connections:
                await stack.enter_async_context(connections(app))
            for name, work in background.items():
                await stack.enter_async_context(in_background(name, work, metrics.failed))
            yield

    app = FastAPI(
        lifespan=lifespan,
        title="Millrace insights",
        version="1",
        description=DESCRIPTION,
        responses=documentation.RESPONSES,
        dependencies=[Depends(refuse_others)],
        generate_unique_id_function=lambda route: route.name,
        openapi_url=None,  # see documentation
    )
    app.state.settings = settings
    app.state.store = store
    app.state.feed = feed
    app.state.hub = hub
    traffic_job = TrafficJob(store)
    app.state.history = History(store, traffic_job, settings)
    app.state.windows = Windows(store, traffic_job, settings)
    app.state.shared = Shared(keep_seconds=1)
    app.state.readiness = Shared(READY_SECONDS, keep_failures=StoreUnavailable)
    app.state.admission = Admission(settings)
    app.state.metrics = metrics
    app.state.catalogue = catalogue
    problems.install(app)
    add_middleware(app, settings, Readers(keys, people), metrics, clock)
    app.include_router(router)
    declared.install(app)
    session_routes.install(app)
    runbooks.install(app)
    operations.install(app, settings)
    login.install(app)
    documentation.install(app, catalogue)
    app.mount("/page", PublicFiles(directory=PAGE))
    return app


def add_middleware(
    app: FastAPI,
    settings: Settings,
    readers: Readers,
    metrics: Metrics,
    clock: Callable[[], float],
) -> None:
    """From the routes outwards. Nobody's answer is shared, nor called unchanged, before `Guarded`
    has let its reader in; and `RateLimited` counts who tries keys."""
    limit = RateLimit(settings.client_requests_per_second, settings.client_burst, clock)
    app.add_middleware(middleware.Tagged)
    app.add_middleware(
        GZipMiddleware,
        minimum_size=GZIP_BYTES,
        compresslevel=GZIP_LEVEL,
        exclude_content_types=NOT_COMPRESSED,
    )
    app.add_middleware(Coalesced, own={LIVE_STREAM, login.PATH})
    app.add_middleware(middleware.Validated)
    app.add_middleware(
        middleware.Guarded, routes=app.routes, readers=readers, refused=metrics.refused
    )
    app.add_middleware(
        middleware.RateLimited,
        limit=limit,
        pause_seconds=settings.client_pause_seconds,
        free=HEALTH_CHECKS,
    )
    app.add_middleware(problems.Unexpected, failed=metrics.failed)
    app.add_middleware(Timed, metrics=metrics)  # refusals and failures are answers, too
    if settings.allowed_origins:
        app.add_middleware(
            CORSMiddleware,
            allow_origins=settings.allowed_origins,
            allow_methods=["GET", "HEAD"],
            allow_headers=["Authorization", "If-None-Match", "Last-Event-ID"],
            expose_headers=["ETag", "Link", "Retry-After", "WWW-Authenticate"],
        )
    app.add_middleware(middleware.AnswerHeaders)
    app.add_middleware(middleware.HeadAsGet)


def serve() -> FastAPI:
    """The application over Cassandra and Redis: ``uvicorn --factory millrace_api.app:serve``."""
    settings = load_settings()
    store, feed = CassandraStore(settings), RedisFeed(settings)
    registry = zookeeper.Registry(
        zookeeper.client(settings.zookeeper), settings.znodes, settings.host
    )
    copy = FileStore(settings.data / COPY)
    keys = Follower(registry, copy, settings.doors, time.time)

    @asynccontextmanager
    async def connected(app: FastAPI) -> AsyncIterator[None]:
        metrics = app.state.metrics
        registry.start()
        with metrics.served(settings.metrics_port):
            async with in_background("connection", store.connect_forever, metrics.failed):
                yield
        await asyncio.to_thread(registry.close)
        store.close()
        await feed.close()

    return create_app(settings, store, feed, keys, connected, people=people_of(settings))


def people_of(settings: Settings) -> People | None:
    """None where no load balancer authenticates people."""
    if settings.oidc is None:
        return None
    from millrace_api import people  # its libraries take 9 MB, which only these hosts have to spare

    fetch = people.fetch_from(settings.oidc.region)
    return people.BalancersPeople(settings.oidc, fetch, time.time)
