"""Runs independent steps side by side and shows how each is doing."""

import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import contextmanager
from dataclasses import dataclass, field
from graphlib import TopologicalSorter

from rich.live import Live
from rich.spinner import Spinner
from rich.table import Table  # noqa: TID251 (moves)
from rich.text import Text

from millrace.common.console import Console, as_text
from millrace.common.errors import OperatorError
from millrace.common.stage import every_minute

Report = Callable[[str], None]


@dataclass(frozen=True)
class Step:
    """One idempotent piece of work; it starts when the needed steps of this run have ended well."""

    name: str
    work: Callable[[Report], object]
    needs: Sequence[str] = ()


@dataclass
class Progress:
    """What the screen shows of a step."""

    state: str = "waiting"
    said: str = ""
    started: float | None = None
    ended: float | None = None
    spinner: Spinner = field(default_factory=lambda: Spinner("dots"))

    @property
    def seconds(self) -> float:
        return (self.ended or time.monotonic()) - self.started if self.started else 0.0


class Skipped(Exception):
    """A step that could not start, because one that it needs had failed."""


def run_steps(steps: Sequence[Step], console: Console) -> None:
    """Run all steps; those that fail don't stop the others, and are raised as one error."""
    board = {step.name: Progress() for step in steps}
    show = _live if console.is_terminal else _plain
    with show(console, board) as tell, ThreadPoolExecutor(len(steps)) as pool:
        futures: dict[str, Future] = {}
        for step in _in_order(steps):
            needed = [futures[name] for name in step.needs if name in futures]
            futures[step.name] = pool.submit(_run, step, board[step.name], needed, tell)
        wait(futures.values())  # a Ctrl-C arrives here; leaving the pool lets the steps clean up
    _raise_failures(futures)


def _in_order(steps: Sequence[Step]) -> Iterator[Step]:
    """Needed steps first: a step waits in its thread for futures that must already exist.

    A need that isn't among the steps of this run is met already.
    """
    named = {step.name: step for step in steps}
    needs = {step.name: named.keys() & set(step.needs) for step in steps}
    return map(named.__getitem__, TopologicalSorter(needs).static_order())


Tell = Callable[[str, Progress], None]


def _run(step: Step, progress: Progress, needed: Sequence[Future], tell: Tell) -> None:
    def report(said: str, state: str = "running") -> None:
        progress.state, progress.said = state, said
        tell(step.name, progress)

    if any(future.exception() for future in needed):
        report(f"needs {' and '.join(step.needs)}", "skipped")
        raise Skipped
    progress.started = time.monotonic()
    try:
        step.work(report)
    except BaseException as error:
        progress.ended = time.monotonic()
        report(str(error).partition("\n")[0], "failed")
        raise
    progress.ended = time.monotonic()
    report(progress.said, "done")


def _raise_failures(futures: dict[str, Future]) -> None:
    told = []
    for name, future in futures.items():
        error = future.exception()
        if isinstance(error, OperatorError):
            told.append(f"{name}: {error.message}" + (f"\n  -> {error.hint}" if error.hint else ""))
        elif error and not isinstance(error, Skipped):
            raise error  # our bug: its traceback is what helps
    if told:
        hint = "put it right and run the same command again: what is done stays done"
        raise OperatorError("\n".join(told), hint)


STYLES = {"waiting": "dim", "running": "cyan", "done": "green", "failed": "red", "skipped": "dim"}
SIGNS = {"waiting": "·", "done": "✓", "failed": "✗", "skipped": "-"}


@contextmanager
def _live(console: Console, board: dict[str, Progress]) -> Iterator[Tell]:
    """Shows one line per step that keeps itself up to date."""
    with Live(get_renderable=lambda: _table(board), console=console, refresh_per_second=8):
        yield lambda name, progress: None


def _table(board: dict[str, Progress]) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column()
    table.add_column(no_wrap=True)
    table.add_column(justify="right")
    table.add_column(no_wrap=True, overflow="ellipsis")
    for name, progress in board.items():
        style = STYLES[progress.state]
        sign = SIGNS.get(progress.state, progress.spinner)
        seconds = f"{progress.seconds:.0f} s" if progress.started else ""
        table.add_row(sign, Text(name, style), seconds, as_text(progress.said, "dim"))
    return table


@contextmanager
def _plain(console: Console, board: dict[str, Progress]) -> Iterator[Tell]:
    """For logs: when a step begins and ends, and each minute what is under way."""
    began = time.monotonic()
    begun: set[str] = set()

    def line(text: str) -> None:
        console.print(f"{time.monotonic() - began:5.0f} s  {text}", soft_wrap=True)

    def tell(name: str, progress: Progress) -> None:
        if progress.state == "running" and name in begun:
            return
        begun.add(name)
        said = {"running": progress.said, "done": f"done after {progress.seconds:.0f} s"}.get(
            progress.state, f"{progress.state}: {progress.said}"
        )
        line(f"{name}: {said}")

    def remind() -> None:
        if steps := running(board):
            line("; ".join(f"{name}: {step.said}" for name, step in steps))

    with every_minute(remind):
        yield tell


def running(board: dict[str, Progress]) -> list[tuple[str, Progress]]:
    """Returns what is under way, in the order of the steps."""
    return [(name, step) for name, step in board.items() if step.started and not step.ended]
