"""The random nemesis: another fault every few seconds, several at once, then everything heals."""

import random
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from millrace.common.errors import NobodyError, OperatorError
from millrace.drill import standby
from millrace.drill.blocks import BlockFailed, run_blocks
from millrace.drill.display import Display
from millrace.drill.report import Gaps
from millrace.drill.runbook import Runbook
from millrace.drill.stage import Stage, wait_healthy
from millrace.drill.timeline import Episode, Mark, Span
from millrace.ledger import IngestPath
from millrace.plan import Plan

NAME = "random"
FAULT = 27  # its row of the fault matrix
SHORTEST_SECONDS, LONGEST_SECONDS = 5.0, 45.0  # that a fault stays


def choose(rng: random.Random, candidates: Sequence[Runbook], broken: set[str]) -> Runbook | None:
    """A fault in a component that is whole: two faults in one could be more than it survives."""
    free = [runbook for runbook in candidates if runbook.about.component not in broken]
    return rng.choice(free) if free else None


class NoVictimError(Exception):
    """A fault could not be injected now: nobody is what it would have killed."""


@dataclass
class Nemesis:
    """Faults that are in place, each in a thread of its own until it is taken back.

    ``ask`` says which components aren't whole. One look at the cluster serves all faults: many at
    once would be a load of their own.
    """

    stack: str
    folder: Path
    show: Display
    ask: Callable[[], set[str]]
    marks: list[Mark] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    no_victim: list[str] = field(default_factory=list)
    _ending: threading.Event = field(default_factory=threading.Event)
    _running: dict[Future[None], str] = field(default_factory=dict)
    _unhealthy: set[str] = field(default_factory=set)
    _to_roll_back: list[tuple[Runbook, Path]] = field(default_factory=list)
    _pool: ThreadPoolExecutor = field(default_factory=ThreadPoolExecutor)

    @property
    def injected(self) -> int:
        return len(self._running) - len(self.no_victim)

    @property
    def verdict(self) -> list[str]:
        """Returns what failed. That there is no leader to kill while one is elected is no failure
        of the cluster; but a drill that broke next to nothing has shown next to nothing."""
        idle = self.injected < len(self.no_victim)
        return self.failures + (self.no_victim if idle else [])

    @property
    def broken(self) -> set[str]:
        """Components that have a fault or weren't whole at the last look."""
        standing = {part for future, part in self._running.items() if not future.done()}
        return standing | self._unhealthy

    def look(self) -> None:
        self._unhealthy = self.ask()

    def inject(self, runbook: Runbook, seconds: float) -> None:
        """Begins a fault that is taken back after ``seconds``."""
        self.show.phase(f"{runbook.name}, for {seconds:.0f} s")
        folder = self.folder / f"fault-{len(self._running) + 1}"
        fault = self._pool.submit(self._fault, runbook, seconds, folder)
        self._running[fault] = runbook.about.component

    def heal(self) -> None:
        """Takes back every fault at once and waits until that is done.

        One that couldn't be taken back, because another had its host down, is taken back last.
        """
        self._ending.set()
        for fault in self._running:
            fault.result()
        for runbook, folder in self._to_roll_back:
            try:
                self._step(runbook, "rollback", folder)
            except BlockFailed as error:
                self.failures.append(str(error))

    def _fault(self, runbook: Runbook, seconds: float, folder: Path) -> None:
        try:
            self._inject(runbook, folder)
            self._ending.wait(seconds)
            self._step(runbook, "recover", folder)
        except NoVictimError as error:
            self.no_victim.append(str(error))
        except BlockFailed as error:
            self.failures.append(str(error))
        finally:
            self._roll_back(runbook, folder)

    def _inject(self, runbook: Runbook, folder: Path) -> None:
        try:
            self._step(runbook, "inject", folder)
        except BlockFailed as error:
            if error.code == NobodyError.exit_code:
                raise NoVictimError(str(error)) from error
            raise

    def _roll_back(self, runbook: Runbook, folder: Path) -> None:
        try:
            self._step(runbook, "rollback", folder)
        except BlockFailed:
            self._to_roll_back.append((runbook, folder))

    def _step(self, runbook: Runbook, tag: str, folder: Path) -> None:
        start = time.time()
        try:
            run_blocks(runbook, tag, self.stack, folder)
        finally:
            self.marks.append(Mark(name=tag, start=start, end=time.time()))


@contextmanager
def healing(nemesis: Nemesis) -> Iterator[Nemesis]:
    """However the context is left, no fault is left behind."""
    try:
        yield nemesis
    finally:
        nemesis.show.phase("heal")
        nemesis.heal()


@dataclass
class RandomDrill:
    """Breaks things for ``minutes``; the same seed makes the same choices.

    The choices are the same as long as the cluster heals as fast.
    """

    candidates: Sequence[Runbook]
    minutes: float
    every_seconds: float
    seed: int
    name: str = NAME
    faults: list[int] = field(default_factory=lambda: [FAULT])
    goal: Gaps = field(default_factory=dict)
    alerts: None = None
    through: IngestPath = "kafka"
    injected: int = 0

    @property
    def title(self) -> str:
        return f"{self.injected} random faults in {self.minutes:g} minutes (seed {self.seed})"

    def episodes(self, stage: Stage) -> Iterator[Episode]:
        rng = random.Random(self.seed)
        floor = stage.floor()
        stage.show.phase(f"{self.minutes:g} minutes of random faults, seed {self.seed}")
        standby_since = standby.standby_since(stage.cluster)
        since = time.time()
        stack, ask = stage.plan.environment, stage.cluster.unhealthy
        with healing(Nemesis(stack, stage.folder, stage.show, ask)) as nemesis:
            while (now := time.time()) - since < 60 * self.minutes:
                nemesis.look()
                if runbook := choose(rng, self.candidates, nemesis.broken):
                    nemesis.inject(runbook, rng.uniform(SHORTEST_SECONDS, LONGEST_SECONDS))
                time.sleep(max(0.0, now + self.every_seconds - time.time()))
        failures = nemesis.verdict + wait_healthy(stage.cluster, stage.show)
        self.injected = nemesis.injected
        marks = sorted(nemesis.marks, key=lambda mark: mark.start)
        failures += stage.watch.problems()
        yield Episode(Span(since, time.time()), marks, failures, standby_since, floor)


def random_drill(
    plan: Plan, runbooks: Sequence[Runbook], minutes: float, every_seconds: float, seed: int
) -> RandomDrill:
    """The drill that chooses among the runbooks. Raises OperatorError when there is nothing to
    choose."""
    candidates = [r for r in runbooks if r.about.random and r.about.may_run_in(plan)]
    if not candidates:
        raise OperatorError(
            f"no runbook for {plan.environment} has `random: true`",
            "runbooks/README.md lists the runbooks",
        )
    return RandomDrill(candidates, minutes, every_seconds, seed)
