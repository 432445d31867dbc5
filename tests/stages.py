"""Runs commands that need each other, two at once, and says what each took."""

import csv
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from concurrent.futures import FIRST_COMPLETED, Future, ThreadPoolExecutor, wait
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path

from rich.table import Table
from rich.text import Text

from millrace.common.console import Console

AT_ONCE = 2  # the cores of the smallest machine that the suite is for
REPORT_EVERY_SECONDS = 60
TIMES = Path("tests/stage-times.csv")
PACE_ADDITIONS = 10_000_000


@dataclass(frozen=True)
class Stage:
    """A command; it begins once the stages that it needs have passed."""

    name: str
    command: Sequence[str]
    needs: Sequence[str] = ()


@dataclass(frozen=True)
class Result:
    """``at`` is when the stage began; both are seconds, ``at`` since the run's begin."""

    stage: str
    at: float
    seconds: float
    failed: bool


@dataclass
class Running:
    stage: Stage
    at: float
    log: Path = field(default_factory=Path)

    @property
    def last_line(self) -> str:
        lines = self.log.read_text(errors="replace").splitlines() if self.log.exists() else []
        return next((line.strip() for line in reversed(lines) if line.strip()), "")


def ready(
    waiting: Sequence[Stage], running: Sequence[str], passed: Sequence[str], at_once: int
) -> list[Stage]:
    """The stages that may begin now: the first ones whose needs have passed, while there is room.

    Raises ValueError if nothing runs and nothing can begin: a need that is no stage, or a circle.
    """
    free = [stage for stage in waiting if not {*stage.needs} - {*passed}]
    if waiting and not free and not running:
        raise ValueError(f"no stage can begin: {', '.join(stage.name for stage in waiting)}")
    return free[: at_once - len(running)]


def run(
    stages: Sequence[Stage],
    console: Console,
    folder: Path,
    environment: Mapping[str, str],
    at_once: int = AT_ONCE,
) -> list[Result]:
    """Runs all stages; once one has failed, none begins, and those that run end.

    What a stage prints is shown when it has ended: two at once would mix their lines.
    """
    waiting, results = list(stages), list[Result]()
    running: dict[Future[bool], Running] = {}
    began = time.monotonic()
    with ThreadPoolExecutor(at_once) as pool, tempfile.TemporaryDirectory() as logs:
        while running or (waiting and not any(result.failed for result in results)):
            passed = [result.stage for result in results if not result.failed]
            names = [one.stage.name for one in running.values()]
            if len(passed) == len(results):
                for stage in ready(waiting, names, passed, at_once):
                    waiting.remove(stage)
                    one = Running(stage, time.monotonic() - began)
                    one.log = Path(logs) / f"{len(waiting)}.log"
                    console.print(Text(f"{one.at:5.0f} s  {stage.name}: begins"))
                    running[pool.submit(_passes, stage, one.log, folder, environment)] = one
            ended, _ = wait(running, REPORT_EVERY_SECONDS, FIRST_COMPLETED)
            if not ended:
                _say_what_runs(running.values(), console, time.monotonic() - began)
            for future in ended:
                one = running.pop(future)
                seconds = time.monotonic() - began - one.at
                results.append(Result(one.stage.name, one.at, seconds, not future.result()))
                _show(one, results[-1], console)
    return results


def _passes(stage: Stage, log: Path, folder: Path, environment: Mapping[str, str]) -> bool:
    with log.open("wb") as out:
        done = subprocess.run(
            stage.command,
            cwd=folder,
            env=dict(environment),
            stdin=subprocess.DEVNULL,
            stdout=out,
            stderr=subprocess.STDOUT,
        )
    return done.returncode == 0


def _say_what_runs(running: Sequence[Running], console: Console, now: float) -> None:
    for one in running:
        console.print(Text(f"{now:5.0f} s  {one.stage.name}: {one.last_line[:90]}"))


def _show(one: Running, result: Result, console: Console) -> None:
    word, style = ("failed", "red") if result.failed else ("passed", "green")
    console.rule(Text(f"{one.stage.name} {word} after {result.seconds:.0f} s", style))
    console.print(Text(" ".join(one.stage.command), "dim"), soft_wrap=True)
    console.out(one.log.read_text(errors="replace").rstrip(), highlight=False)


def report(results: Sequence[Result], console: Console, before: Path = TIMES) -> None:
    """A table of what each stage took, beside the newest recorded run."""
    recorded = newest(before)
    table = Table(title="make test", title_justify="left")
    for column in ("stage", "from", "seconds", "recorded", "result"):
        table.add_column(column, justify="left" if column in ("stage", "result") else "right")
    for one in sorted(results, key=lambda result: result.at):
        result = Text("failed", "red") if one.failed else Text("passed", "green")
        known = recorded.get(one.stage, "")
        table.add_row(one.stage, f"{one.at:.0f}", f"{one.seconds:.0f}", known, result)
    table.add_section()
    table.add_row("all", "", f"{whole(results):.0f}", recorded.get("all", ""), "")
    console.print(table)


def whole(results: Sequence[Result]) -> float:
    """Seconds from the run's begin until the last stage had ended."""
    return max((one.at + one.seconds for one in results), default=0.0)


def newest(path: Path) -> dict[str, str]:
    """Stage → seconds, of the newest run in the file; a stage that it lacks isn't there."""
    if not path.exists():
        return {}
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    return {row["stage"]: row["seconds"] for row in rows if row["date"] == rows[-1]["date"]}


def record(results: Sequence[Result], folder: Path) -> None:
    """Adds the run to the file of times, with the pace of this machine's cores beside it."""
    git = ["git", "rev-parse", "--short=12", "HEAD"]
    commit = subprocess.run(git, cwd=folder, check=True, capture_output=True, text=True).stdout
    head = [datetime.now(UTC).strftime("%Y-%m-%dT%H:%MZ"), commit.strip(), f"{pace():.2f}"]
    path = folder / TIMES
    new = not path.exists()
    with path.open("a", newline="") as file:
        out = csv.writer(file, lineterminator="\n")
        if new:
            out.writerow(["date", "commit", "pace", "stage", "seconds"])
        for one in results:
            out.writerow([*head, one.stage, f"{one.seconds:.0f}"])
        out.writerow([*head, "all", f"{whole(results):.0f}"])


def pace() -> float:
    """Processor seconds of ten million additions in Python: 0.8 on fast cores, 2.2 on slow ones."""
    began, total = time.process_time(), 0
    for number in range(PACE_ADDITIONS):
        total += number
    return time.process_time() - began
