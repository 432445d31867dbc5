"""One answer for all who ask for the same while it is being made."""

import asyncio

import httpx
import pytest
from fastapi import FastAPI, Request
from millrace_api.coalescing import Coalesced
from millrace_api.settings import Settings
from starlette.responses import PlainTextResponse

from tests.api.fakes import FakeFeed, FakeStore
from tests.api.keys import BEARER, create_app
from tests.clock import play

WEEK = "from=2015-05-17T00:00:00Z&to=2015-05-24T00:00:00Z"


class Scene:
    """An application whose answers wait until they may be given, and whose status is told."""

    def __init__(self) -> None:
        self.may, self.asked = asyncio.Event(), 0
        self.statuses = [200]
        app = FastAPI()
        app.add_middleware(Coalesced, own={"/v1/endless"})

        @app.api_route("/{path:path}", methods=["GET", "POST"])
        async def answer(request: Request) -> PlainTextResponse:
            self.asked += 1
            number = self.asked
            await self.may.wait()
            status = self.statuses[min(number, len(self.statuses)) - 1]
            return PlainTextResponse(f"answer {number}", status)

        self._transport = httpx.ASGITransport(app)

    async def ask(self, *paths: str, method: str = "GET") -> list[tuple[int, str]]:
        """All at once."""
        async with httpx.AsyncClient(transport=self._transport, base_url="http://api") as client:
            asking = [asyncio.create_task(client.request(method, path)) for path in paths]
            await asyncio.sleep(0.05)
            self.may.set()
            answers = await asyncio.gather(*asking)
        return [(answer.status_code, answer.text) for answer in answers]


def test_the_same_question_is_answered_once() -> None:
    async def scene() -> None:
        at = Scene()
        assert await at.ask(*["/v1/x?a=1"] * 3) == [(200, "answer 1")] * 3
        assert await at.ask("/v1/x?a=1") == [(200, "answer 2")]  # nothing is kept

    play(scene)


@pytest.mark.parametrize(
    ("paths", "method"),
    [
        (["/v1/x?a=1", "/v1/x?a=2"], "GET"),
        (["/v1/x", "/v1/y"], "GET"),
        (["/v1/endless"] * 2, "GET"),
        (["/healthz"] * 2, "GET"),
        (["/v1/x"] * 2, "POST"),
    ],
)
def test_what_differs_or_may_not_be_shared_is_asked_each_time(
    paths: list[str], method: str
) -> None:
    async def scene() -> None:
        assert sorted(await Scene().ask(*paths, method=method)) == [
            (200, "answer 1"),
            (200, "answer 2"),
        ]

    play(scene)


def test_a_refusal_is_one_clients_own() -> None:
    async def scene() -> None:
        at = Scene()
        at.statuses = [429, 200]
        first, *others = await at.ask(*["/v1/x"] * 3)
        assert first == (429, "answer 1")
        assert {status for status, _ in others} == {200}

    play(scene)


def test_who_leaves_does_not_take_the_answer_along() -> None:
    async def scene() -> None:
        at = Scene()
        leaving = asyncio.create_task(at.ask("/v1/x"))
        await asyncio.sleep(0.01)
        leaving.cancel()
        assert await at.ask("/v1/x") == [(200, "answer 1")]

    play(scene)


def test_many_viewers_of_a_week_are_one_reader_of_the_store(settings: Settings) -> None:
    async def scene() -> None:
        store = FakeStore(takes_seconds=0.05)
        app = create_app(settings, store, FakeFeed())
        async with httpx.AsyncClient(
            transport=httpx.ASGITransport(app), base_url="http://api", headers=BEARER
        ) as client:
            path = f"/v1/traffic?window=1h&{WEEK}"
            answers = await asyncio.gather(*(client.get(path) for _ in range(60)))
        assert {answer.status_code for answer in answers} == {200}
        assert len(store.reads) == 1

    play(scene)
