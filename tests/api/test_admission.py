"""Lanes and rates: nobody's requests delay everybody's."""

import asyncio
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime
from typing import Any

import httpx
import pytest
from hypothesis import given
from hypothesis import settings as hypothesis_settings
from hypothesis import strategies as st
from millrace_api.admission import (
    LATEST_WEIGHS,
    Admission,
    Busy,
    Lane,
    RateLimit,
    TooMany,
)
from millrace_api.settings import Settings
from millrace_api.store import JobProgress
from uvicorn.middleware.proxy_headers import ProxyHeadersMiddleware

from tests.api.fakes import FakeFeed, FakeStore
from tests.api.keys import BEARER, create_app
from tests.clock import Clock, now, play

YEAR = {"from": "2015-01-01T00:00:00Z", "to": "2016-01-01T00:00:00Z"}
TWO_HOURS = {"from": "2015-05-17T10:00:00Z", "to": "2015-05-17T12:00:00Z", "window": "1m"}


def over(app: Any, address: str = "10.0.0.1") -> httpx.AsyncClient:
    transport = httpx.ASGITransport(app, client=(address, 1))
    return httpx.AsyncClient(transport=transport, base_url="http://api", headers=BEARER)


def a_year(number: int) -> dict[str, str]:
    """Each another one: the same question is answered once."""
    return YEAR | {"from": YEAR["from"].replace(":00:00Z", f":{number:02}:00Z")}


def test_light_requests_do_not_wait_behind_heavy_ones(
    settings: Settings, store: FakeStore, feed: FakeFeed
) -> None:
    store.takes_seconds = 0.03  # a year that is still open is 365 reads
    app = create_app(settings, store, feed)

    async def scenario() -> None:
        async with over(app) as client:
            heavy = [
                asyncio.create_task(client.get("/v1/traffic/total", params=a_year(number)))
                for number in range(10)
            ]
            await asyncio.sleep(0.2)
            assert (await client.get("/v1/traffic", params=TWO_HOURS)).status_code == 200
            for path in ("/v1/progress", "/v1/status", "/healthz", "/readyz"):
                assert (await client.get(path)).status_code == 200, path
            assert store.most_reading <= 2 * 8 + 1
            # Two are being answered still, two wait; six are told to come back.
            refused = [task.result() for task in heavy if task.done()]
            assert Counter(answer.status_code for answer in refused) == {503: 6}
            assert all(int(answer.headers["retry-after"]) > 0 for answer in refused)
            answers = await asyncio.gather(*heavy)
            assert Counter(answer.status_code for answer in answers) == {503: 6, 200: 4}

    play(scenario)


def test_one_client_does_not_fill_the_heavy_lane(
    settings: Settings, store: FakeStore, feed: FakeFeed
) -> None:
    store.takes_seconds = 0.01
    app = create_app(settings.model_copy(update={"client_heavy": 2}), store, feed)

    async def scenario() -> None:
        async with over(app) as greedy, over(app, "10.0.0.2") as other:
            asked = [greedy.get("/v1/traffic/total", params=a_year(n)) for n in range(5)]
            asked.append(other.get("/v1/traffic/total", params=a_year(5)))
            answers = await asyncio.gather(*asked)
            assert [answer.status_code for answer in answers] == [200, 200, 429, 429, 429, 200]
            assert int(answers[2].headers["retry-after"]) > 0
            assert (await greedy.get("/v1/traffic/total", params=YEAR)).status_code == 200

    play(scenario)


def test_a_place_that_rests_stays_empty_for_as_long_as_it_was_taken() -> None:
    async def scenario() -> None:
        lane = Lane("heavy", 1, 1, 5, rests=True)
        async with lane.place():
            await asyncio.sleep(0.2)
        left = now()
        async with lane.place():
            assert now() - left == pytest.approx(0.2)

    play(scenario)


class Queue:
    """A lane of one place, which is taken, and the names of those who then got it, in order."""

    def __init__(self, queue: int = 100) -> None:
        self.lane = Lane("light", places=1, queue=queue, wait_seconds=5)
        self.served: list[str] = []
        self.refused: list[str] = []
        self._tasks: list[asyncio.Task[None]] = []

    def ask(self, name: str, rank: int) -> None:
        async def one() -> None:
            try:
                async with self.lane.place(rank):
                    self.served.append(name)
                    await asyncio.sleep(0.001)
            except Busy:
                self.refused.append(name)

        self._tasks.append(asyncio.create_task(one()))

    async def settle(self) -> None:
        await asyncio.gather(*self._tasks)


def test_who_has_asked_for_least_goes_first() -> None:
    async def scenario() -> None:
        queue = Queue()
        for name, rank in {"first": 0, "c": 2, "b": 1, "a": 0, "d": 2}.items():
            queue.ask(name, rank)
        await queue.settle()
        assert queue.served == ["first", "a", "b", "c", "d"]

    play(scenario)


def test_of_too_many_the_one_that_would_go_last_is_refused() -> None:
    async def scenario() -> None:
        queue = Queue(queue=2)
        for name, rank in {"first": 0, "b": 1, "c": 2, "a": 0, "d": 2}.items():
            queue.ask(name, rank)
        await queue.settle()
        assert (queue.served, {*queue.refused}) == (["first", "a", "b"], {"c", "d"})

    play(scenario)


def test_one_who_asks_one_thing_does_not_wait_behind_all_that_others_ask(
    settings: Settings, store: FakeStore, feed: FakeFeed
) -> None:
    store.takes_seconds = 0.05
    app = create_app(
        settings.model_copy(update={"light_places": 2, "light_queue": 99}), store, feed
    )

    async def scenario() -> None:
        async with over(app) as greedy, over(app, "10.0.0.2") as other:
            asked = [
                asyncio.create_task(greedy.get("/v1/traffic", params=TWO_HOURS | {"from": start}))
                for start in (f"2015-05-17T10:{minute:02}:00Z" for minute in range(40))
            ]
            while len(app.state.admission._light._waiting) < 38:
                await asyncio.sleep(0.001)
            its_own = TWO_HOURS | {"from": "2015-05-17T11:00:00Z"}
            assert (await other.get("/v1/traffic", params=its_own)).status_code == 200
            assert sum(one.done() for one in asked) < 10
            assert {one.status_code for one in await asyncio.gather(*asked)} == {200}

    play(scenario)


@given(
    st.lists(st.tuples(st.integers(0, 3), st.none() | st.integers(0, 40)), max_size=40),
    st.integers(1, 3),
    st.integers(1, 10),
)
@hypothesis_settings(max_examples=50, deadline=None)
def test_no_place_is_lost_whoever_leaves_when(
    asked: list[tuple[int, int | None]], places: int, queue: int
) -> None:
    async def scenario() -> None:
        lane = Lane("light", places, queue, wait_seconds=0.003)

        async def ask(rank: int) -> None:
            async with lane.place(rank):
                await asyncio.sleep(0.001)

        loop = asyncio.get_running_loop()
        tasks = []
        for rank, leaves in asked:
            tasks.append(asyncio.create_task(ask(rank)))
            if leaves is not None:
                loop.call_later(leaves / 8000, tasks[-1].cancel)
        await asyncio.gather(*tasks, return_exceptions=True)
        assert (lane._free, lane._waiting) == (places, [])

    play(scenario)


def test_who_is_refused_is_told_when_those_who_wait_have_had_their_turn() -> None:
    async def scenario() -> None:
        lane = Lane("heavy", places=2, queue=4, wait_seconds=5)
        assert lane.again_seconds() == 2  # nothing is known yet
        lane._taken_seconds = 3

        async def ask() -> None:
            async with lane.place():
                await asyncio.sleep(60)

        asked = [asyncio.create_task(ask()) for _ in range(6)]
        await asyncio.sleep(0.01)
        with pytest.raises(Busy) as refusal:
            await ask()
        assert refusal.value.retry_after_seconds == 9  # two have places, four wait for two
        lane._taken_seconds = 1000
        assert lane.again_seconds() == 30
        for task in asked:
            task.cancel()

    play(scenario)


def test_a_lane_learns_how_long_its_places_are_taken() -> None:
    async def scenario() -> None:
        lane = Lane("heavy", places=1, queue=1, wait_seconds=5, rests=True)
        for _ in range(10):
            async with lane.place():
                await asyncio.sleep(0.05)
        # Its rest is part of it.
        assert lane._taken_seconds == pytest.approx(0.1 * (1 - (1 - LATEST_WEIGHS) ** 10))

    play(scenario)


def test_a_refusal_comes_after_a_pause_and_delays_nobody_else(
    settings: Settings, store: FakeStore, feed: FakeFeed
) -> None:
    limits = {"client_requests_per_second": 1, "client_burst": 1, "client_pause_seconds": 0.5}
    app = create_app(settings.model_copy(update=limits), store, feed, clock=now)

    async def scenario() -> None:
        async with over(app) as scanner, over(app, "10.0.0.2") as other:
            await scanner.get("/v1/nothing")
            began = now()
            refused = asyncio.create_task(scanner.get("/v1/nothing"))
            await asyncio.sleep(0.01)
            assert (await other.get("/v1/progress")).status_code == 200
            assert not refused.done()
            assert (await refused).status_code == 429
            assert now() - began == pytest.approx(0.5)

    play(scenario)


def test_who_asks_too_often_is_told_when_to_ask_again_and_others_are_not(
    settings: Settings, store: FakeStore, feed: FakeFeed
) -> None:
    limits = {"client_requests_per_second": 1, "client_burst": 3}
    app = create_app(settings.model_copy(update=limits), store, feed, clock=now)

    async def scenario() -> None:
        async with over(app) as scanner, over(app, "10.0.0.2") as other:
            answers = [await scanner.get("/v1/nothing") for _ in range(5)]
            assert [answer.status_code for answer in answers] == [404, 404, 404, 429, 429]
            assert answers[-1].headers["retry-after"] == "1"
            assert answers[-1].headers["content-type"] == "application/problem+json"
            assert (await scanner.get("/healthz")).status_code == 200
            assert (await other.get("/v1/progress")).status_code == 200

    play(scenario)


def test_behind_a_load_balancer_a_client_is_who_it_says_asks(
    settings: Settings, store: FakeStore, feed: FakeFeed
) -> None:
    limits = {"client_requests_per_second": 1, "client_burst": 1}
    app = create_app(settings.model_copy(update=limits), store, feed, clock=now)
    behind = ProxyHeadersMiddleware(app, trusted_hosts="10.64.0.0/16")

    async def status(client: httpx.AsyncClient, forwarded: str) -> int:
        answer = await client.get("/v1/progress", headers={"X-Forwarded-For": forwarded})
        return answer.status_code

    async def scenario() -> None:
        async with over(behind, "10.64.1.2") as balancer, over(behind, "10.9.9.9") as stranger:
            assert await status(balancer, "203.0.113.1") == 200
            assert await status(balancer, "203.0.113.2") == 200
            # What the client itself claims comes first and counts nothing.
            assert await status(balancer, "198.51.100.1, 203.0.113.1") == 429
            assert await status(stranger, "203.0.113.3") == 200
            assert await status(stranger, "203.0.113.4") == 429

    play(scenario)


@given(st.lists(st.floats(min_value=0, max_value=3), min_size=1, max_size=60))
def test_a_rate_holds_over_any_time(pauses: list[float]) -> None:
    clock = Clock()
    limit = RateLimit(per_second=2, burst=5, now=clock)
    admitted: list[float] = []
    for pause in pauses:
        clock.sleep(pause)
        try:
            limit.admit("me")
        except TooMany as refusal:
            clock.sleep(refusal.retry_after_seconds + 1e-6)
            limit.admit("me")  # as told
        admitted.append(clock.seconds)
    for first, start in enumerate(admitted):
        for last in range(first, len(admitted)):
            assert last - first + 1 <= 5 + 2 * (admitted[last] - start) + 1e-3


def test_many_addresses_do_not_fill_the_memory() -> None:
    limit = RateLimit(per_second=1, burst=100)
    for number in range(20_000):
        limit.admit(str(number))
    assert len(limit._done) <= 10_000


def test_who_waits_too_long_is_told_to_come_back() -> None:
    async def scenario() -> None:
        lane = Lane("heavy", places=1, queue=5, wait_seconds=0.05)
        async with lane.place():
            with pytest.raises(Busy, match="take long"):
                async with lane.place():
                    pass
        async with lane.place():
            pass

    play(scenario)


def test_a_client_that_leaves_gives_its_place_back(settings: Settings) -> None:
    async def scenario() -> None:
        admission = Admission(settings.model_copy(update={"client_heavy": 3}))

        async def stay() -> None:
            async with admission.lane("me", 10_000):
                await asyncio.sleep(60)

        for _ in range(5):
            tasks = [asyncio.create_task(stay()) for _ in range(3)]
            await asyncio.sleep(0.001)
            for task in tasks:
                task.cancel()
            await asyncio.gather(*tasks, return_exceptions=True)
        async with asyncio.timeout(1), admission.lane("me", 10_000), admission.lane("me", 10_000):
            pass

    play(scenario)


def test_a_final_year_is_light_the_second_time(
    settings: Settings, store: FakeStore, feed: FakeFeed, progress: Callable[..., JobProgress]
) -> None:
    store.jobs = [progress("2017-01-01T00:00:00Z", datetime.now(UTC))]
    app = create_app(settings.model_copy(update={"client_heavy": 1}), store, feed)

    async def scenario() -> None:
        async with over(app) as client:
            assert (await client.get("/v1/traffic/total", params=YEAR)).status_code == 200
            asked = [client.get("/v1/traffic/total", params=YEAR) for _ in range(20)]
            assert {answer.status_code for answer in await asyncio.gather(*asked)} == {200}

    play(scenario)
