"""Doing once what several ask for."""

import asyncio
from collections.abc import Awaitable, Callable, Hashable, Iterable
from typing import Any, TypeVar

Item = TypeVar("Item")
Found = TypeVar("Found")

AT_ONCE = 8  # partitions that one request reads side by side


class Shared:
    """One answer for all who ask for the same at the same time, and for ``keep_seconds`` after.

    For ``stale_seconds`` more, who asks gets that answer at once, and another is sought meanwhile:
    whoever asks again and again never waits. One caller's leaving doesn't end the others' wait. A
    failure is theirs as well, and isn't kept, but for ``keep_failures``, which asking again at once
    wouldn't mend.
    """

    def __init__(
        self,
        keep_seconds: float = 0,
        keep_failures: type[Exception] | tuple[()] = (),
        stale_seconds: float = 0,
    ) -> None:
        self._keep_seconds = keep_seconds
        self._keep_failures = keep_failures
        self._stale_seconds = stale_seconds
        self._answers: dict[Hashable, asyncio.Task[Any]] = {}
        self._stale: dict[Hashable, asyncio.Task[Any]] = {}

    async def ask(self, key: Hashable, ask: Callable[[], Awaitable[Found]]) -> Found:
        if key not in self._answers:
            self._answers[key] = task = asyncio.ensure_future(ask())
            task.add_done_callback(lambda task: self._done(key, task))
        task = self._answers[key]
        if not task.done():
            task = self._stale.get(key, task)
        return await asyncio.shield(task)

    def _done(self, key: Hashable, task: asyncio.Task[Any]) -> None:
        failure = asyncio.CancelledError() if task.cancelled() else task.exception()
        failed = failure is not None and not isinstance(failure, self._keep_failures)
        if failed or not self._keep_seconds:
            del self._answers[key]
            return
        later = asyncio.get_running_loop().call_later
        later(self._keep_seconds, self._answers.pop, key)
        if self._stale_seconds:
            self._stale[key] = task
            later(self._keep_seconds + self._stale_seconds, self._forget, key, task)

    def _forget(self, key: Hashable, task: asyncio.Task[Any]) -> None:
        if self._stale.get(key) is task:
            del self._stale[key]


async def each(
    ask: Callable[[Item], Awaitable[Found]], items: Iterable[Item], at_once: int = AT_ONCE
) -> list[Found]:
    """What is found for each item, in their order. The first failure cancels the rest."""
    places = asyncio.Semaphore(at_once)

    async def one(item: Item) -> Found:
        async with places:
            return await ask(item)

    try:
        async with asyncio.TaskGroup() as group:
            tasks = [group.create_task(one(item)) for item in items]
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None
    return [task.result() for task in tasks]
