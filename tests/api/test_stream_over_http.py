"""The live stream as a client of the real server gets it."""

import asyncio
from collections.abc import Awaitable, Callable

import httpx
import uvicorn
from millrace_api.settings import Settings

from tests.api.fakes import FakeFeed, FakeStore
from tests.api.keys import BEARER, create_app
from tests.waiting import PATIENCE_SECONDS


def test_over_http_events_are_server_sent_events(
    settings: Settings, store: FakeStore, feed: FakeFeed
) -> None:
    async def follow(client: httpx.AsyncClient) -> None:
        async with client.stream("GET", "/v1/stream") as answer:
            assert answer.headers["content-type"].startswith("text/event-stream")
            assert answer.headers["cache-control"] == "no-store"
            lines = answer.aiter_lines()
            assert await anext(lines) == "retry: 2000"
            feed.entries.append(("6-0", '{"new": 1}'))
            seen = []
            async for line in lines:
                seen.append(line)
                if line.startswith("data: {"):
                    break
            assert seen[-3:] == ["id: 6-0", "event: window", 'data: {"new": 1}']

    asyncio.run(served(create_app(settings, store, feed), follow))


async def served(app: object, ask: Callable[[httpx.AsyncClient], Awaitable[None]]) -> None:
    """What a client asks, at a server on a free port of this machine."""
    server = uvicorn.Server(uvicorn.Config(app, port=0, log_level="error", lifespan="on"))
    serving = asyncio.create_task(server.serve())
    try:
        while not server.started:
            await asyncio.sleep(0.001)
        port = server.servers[0].sockets[0].getsockname()[1]
        async with (
            asyncio.timeout(PATIENCE_SECONDS),
            httpx.AsyncClient(
                base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE_SECONDS, headers=BEARER
            ) as client,
        ):
            await ask(client)
    finally:
        server.should_exit = True
        await serving
