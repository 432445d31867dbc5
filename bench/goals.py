"""Goals beside what the records say. Pure, but for `read_goals`."""

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple

import yaml
from pydantic import BaseModel, ConfigDict, Field

from bench.record import Record, name
from millrace.drill.report import Report
from millrace.drill.runbook import Plane

WHOLE = "the whole service"
GOALS = Path(__file__).parent / "goals.yaml"
# Lines/s of a core, of a node of four: Zaharia et al., SOSP 2013. WordCount has no figure.
D_STREAMS_PER_CORE = {"grep": 160_000, "topk": 62_500}
LATENCY = "2000"  # ms, the bound of D-Streams' figures

TWO_LINES = 200  # characters, of a page as wide as this file's

Records = Mapping[str, Record]
Drills = Mapping[str, Report]


class Goal(BaseModel):
    """``of`` names a figure; or a drill, of which it is what the fault added to the longest
    interruption of results.

    ``why`` is what holds the figure back, in two lines. What holds back a drill is said with the
    drills. ``evidence`` is how it is known, and what else is.
    """

    model_config = ConfigDict(extra="forbid")

    what: str
    of: str | dict[str, str]
    at_most: float | None = None
    at_least: float | None = None
    why: str = Field(default="", max_length=TWO_LINES)
    evidence: str = ""

    @property
    def bound(self) -> str:
        return f"≤ {self.at_most:g}" if self.at_most is not None else f"≥ {self.at_least:,g}"

    def met(self, figure: float) -> bool:
        return (self.at_most is None or figure <= self.at_most) and (
            self.at_least is None or figure >= self.at_least
        )


class Compared(NamedTuple):
    """A goal; ``figure`` is None where nothing is recorded of it."""

    goal: Goal
    figure: float | None
    why: str


def compared(
    goals: Iterable[Goal],
    records: Iterable[Record],
    drills: Drills,
    reasons: Mapping[str, str],
) -> list[Compared]:
    """Each goal with its figure; ``reasons`` say by drill what holds it back."""
    by_name = {name(record): record for record in records}

    def why(goal: Goal) -> str:
        return goal.why if isinstance(goal.of, str) else reasons.get(goal.of["drill"], "")

    return [Compared(goal, measured(goal, by_name, drills), why(goal)) for goal in goals]


def measured(goal: Goal, records: Records, drills: Drills) -> float | None:
    """None where nothing is recorded of it."""
    try:
        if isinstance(goal.of, dict):
            return drills[goal.of["drill"]].added[Plane.PROCESS].seconds
        return FIGURES[goal.of](records)
    except KeyError:
        return None


def _runs(records: Records, record: str) -> list[dict[str, Any]]:
    return list(records[record]["result"]["runs"])


def per_event(run: Mapping[str, Any], rate: float) -> dict[str, float]:
    """Core-µs by role that an event costs above idle, and of the whole service."""
    idle, loaded = run["idle"], run["loaded"]
    roles = sorted(loaded["cores"], key=lambda role: -loaded["cores"][role])
    found = {
        role: 1e6 * (loaded["cores"][role] - idle["cores"].get(role, 0.0)) / rate for role in roles
    }
    whole = 1e6 * (loaded["service_cores"] - idle["service_cores"]) / rate
    return {WHOLE: whole} | found


def _cost(role: str, pages: int = 200) -> Callable[[Records], float]:
    def figure(records: Records) -> float:
        record = records[f"service-cost-{pages}-pages-2-jobs"]
        runs, rate = record["result"]["runs"], record["settings"]["rate"]
        return median(per_event(run, rate)[role] for run in runs)

    return figure


def _idle(records: Records) -> float:
    runs = _runs(records, "service-cost-200-pages-2-jobs")
    return median(run["idle"]["service_cores"] for run in runs)


def _fresh(percentile: str, after: str = "") -> Callable[[Records], float]:
    def figure(records: Records) -> float:
        runs = _runs(records, f"service-fresh-200-pages-2-jobs{after}")
        return median(run["api"]["ms"][percentile] for run in runs) / 1000

    return figure


def _ysb(other: str) -> Callable[[Records], float]:
    """How many times as fast Spark is."""

    def figure(records: Records) -> float:
        runs = _runs(records, "engines-ysb")
        rates = {
            engine: [run["events_per_second"] for run in runs if run["engine"] == engine]
            for engine in ("spark", other)
        }
        if not all(rates.values()):
            raise KeyError(other)
        return median(rates["spark"]) / median(rates[other])

    return figure


def _program(program: str) -> Callable[[Records], float]:
    def figure(records: Records) -> float:
        record = records["dstreams"]
        rates = [
            run["rates"][LATENCY] / record["settings"]["cores"]
            for run in record["result"]["runs"]
            if run["program"] == program
        ]
        if not rates:
            raise KeyError(program)
        return median(rates) / D_STREAMS_PER_CORE[program]

    return figure


def _real_time(other: str) -> Callable[[Records], float]:
    """How many times its p99 the other's is."""

    def figure(records: Records) -> float:
        runs = _runs(records, "modes")
        p99 = {
            mode: [run["ms"]["p99"] for run in runs if run["mode"] == mode]
            for mode in ("real-time", other)
        }
        if not all(p99.values()):
            raise KeyError(other)
        return median(p99[other]) / median(p99["real-time"])

    return figure


FIGURES: dict[str, Callable[[Records], float]] = {
    "sustained": lambda records: float(
        records["service-search-200-pages-2-jobs"]["result"]["sustained_per_second"]
    ),
    "executors": _cost("executors"),
    "service": _cost(WHOLE),
    "idle": _idle,
    "fresh_p50": _fresh("p50"),
    "fresh_p99": _fresh("p99"),
    "fresh_after_idle_p50": _fresh("p50", after="-after-60-min-idle"),
    "fresh_after_idle_p99": _fresh("p99", after="-after-60-min-idle"),
    "keys": lambda records: _cost(WHOLE, 1_000_000)(records) / _cost(WHOLE)(records),
    "ysb_flink": _ysb("flink"),
    "ysb_streams": _ysb("streams"),
    "grep": _program("grep"),
    "topk": _program("topk"),
    "real_time_micro_batch": _real_time("micro-batch"),
    "real_time_flink": _real_time("flink"),
}


def read_goals(path: Path = GOALS) -> list[Goal]:
    return [Goal.model_validate(goal) for goal in yaml.safe_load(path.read_text())]
