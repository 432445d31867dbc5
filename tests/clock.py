"""An event loop whose time passes by itself only where nothing is left to do but to wait.

A second of it takes no second, and none passes while anything works, however slow the machine is:
so a test may say when something happens. A wait that nothing would end fails at once.
"""

import asyncio
import selectors
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor
from typing import Any, TypeVar

T = TypeVar("T")


class MovedLoop(asyncio.SelectorEventLoop):
    """Its clock jumps to the next timer once all tasks wait and no thread works for it.

    It knows no other threads than those of its executor, and no network: with sockets, or threads
    that a test starts itself, an ordinary loop is right.
    """

    def __init__(self) -> None:
        self._now = 0.0
        self._working = 0
        super().__init__(_Selector(self))

    def time(self) -> float:
        return self._now

    def run_in_executor(
        self, executor: Executor | None, func: Callable[..., T], *args: Any
    ) -> asyncio.Future[T]:
        future = super().run_in_executor(executor, func, *args)
        self._working += 1
        future.add_done_callback(self._has_worked)
        return future

    async def shutdown_default_executor(self, *args: Any) -> None:
        self._working += 1  # a thread of asyncio's own sees to it
        try:
            await super().shutdown_default_executor(*args)
        finally:
            self._working -= 1

    def _has_worked(self, _: object) -> None:
        self._working -= 1


class _Selector(selectors.DefaultSelector):
    def __init__(self, loop: MovedLoop) -> None:
        super().__init__()
        self._loop = loop

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        if timeout is not None and timeout <= 0:
            return super().select(0)
        if self._loop._working:
            return super().select(None)  # until a thread says that it is done
        if found := super().select(0):
            return found
        if timeout is None:
            raise AssertionError("all tasks wait, and nothing would end it")
        self._loop._now += timeout
        return []


def play(scenario: Callable[[], Coroutine[Any, Any, T]]) -> T:
    """Runs it in a loop of its own, whose time begins at zero."""
    with asyncio.Runner(loop_factory=MovedLoop) as runner:
        return runner.run(scenario())


def now() -> float:
    """The time of the loop that runs: for code that is given a clock."""
    return asyncio.get_running_loop().time()


class Clock:
    """Time that a test sets, for code that is given one."""

    def __init__(self, seconds: float = 0.0) -> None:
        self.seconds = seconds

    def __call__(self) -> float:
        return self.seconds

    def sleep(self, seconds: float) -> None:
        self.seconds += seconds
