"""What several ask for is done once; who asks again soon after doesn't wait."""

import asyncio

import pytest
from millrace_api.shared import Shared

from tests.clock import play

KEEP, STALE = 0.05, 0.2


class Question:
    """Counts how often it is asked; answers with that number once it may."""

    def __init__(self) -> None:
        self.asked = 0
        self.may = asyncio.Event()
        self.may.set()

    async def __call__(self) -> int:
        self.asked += 1
        number = self.asked
        await self.may.wait()
        return number


def test_those_who_ask_at_once_share_an_answer() -> None:
    async def scene() -> None:
        shared, question = Shared(), Question()
        assert await asyncio.gather(*(shared.ask("a", question) for _ in range(3))) == [1, 1, 1]
        assert await shared.ask("a", question) == 2

    play(scene)


def test_an_answer_that_is_stale_is_given_at_once_while_another_is_sought() -> None:
    async def scene() -> None:
        shared, question = Shared(KEEP, (), STALE), Question()
        assert await shared.ask("a", question) == 1
        await asyncio.sleep(2 * KEEP)
        question.may.clear()
        assert [await shared.ask("a", question) for _ in range(3)] == [1, 1, 1]
        question.may.set()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert await shared.ask("a", question) == question.asked == 2

    play(scene)


def test_an_answer_that_is_too_old_is_waited_for() -> None:
    async def scene() -> None:
        shared, question = Shared(KEEP, (), STALE), Question()
        assert await shared.ask("a", question) == 1
        await asyncio.sleep(2 * (KEEP + STALE))
        assert await shared.ask("a", question) == 2

    play(scene)


def test_a_failed_search_leaves_the_stale_answer_and_is_tried_again() -> None:
    async def scene() -> None:
        shared, question = Shared(KEEP, (), STALE), Question()
        assert await shared.ask("a", question) == 1
        await asyncio.sleep(2 * KEEP)

        async def fails() -> int:
            raise ConnectionError

        assert await shared.ask("a", fails) == 1
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert await shared.ask("a", question) == 1
        await asyncio.sleep(0)
        assert await shared.ask("a", question) == 2

    play(scene)


def test_a_failure_without_an_answer_is_everybodys() -> None:
    async def scene() -> None:
        async def fails() -> int:
            raise ConnectionError

        shared = Shared(KEEP, (), STALE)
        with pytest.raises(ConnectionError):
            await shared.ask("a", fails)

    play(scene)
