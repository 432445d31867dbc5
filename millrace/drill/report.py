"""What a drill measured, and whether that is good enough. Pure."""

from collections.abc import Iterator, Mapping

from millrace.config import Model
from millrace.drill.gaps import Gap, Times, longest
from millrace.drill.runbook import PLANES

# Plane → times of success; of `produce` one list for each partition, the worst of which counts.
Successes = Mapping[str, list[Times]]

PASSED, MISSED, FAILED, LOST = "passed", "missed", "failed", "lost"


class Mark(Model):
    """A step of a runbook; Unix times."""

    name: str
    start: float
    end: float


class Interruption(Model):
    """``seconds`` without a success, from ``start`` (Unix time) on."""

    start: float
    seconds: float


class Span(Model):
    """A part of the drill, in Unix time, and the longest interruption of each plane in it."""

    since: float
    until: float
    gaps: dict[str, Interruption]


class Run(Span):
    """From the fault's injection until the cluster is whole again."""

    marks: list[Mark]
    failures: list[str]


class Machine(Model):
    cores: int
    memory_gib: float


class Audit(Model):
    """Of all events of the drill, in every sink."""

    lost: int
    duplicated: int
    wrong: int
    acknowledged: int
    failed: int
    in_doubt: int


class Summary(Model):
    """What tables are made of. ``rate`` is events/s, interruptions and goals are seconds."""

    name: str
    title: str
    faults: list[int]
    date: str
    stack: str
    machine: Machine
    rate: float
    times: int
    goal: dict[str, float]
    baseline: dict[str, float]
    runs: list[dict[str, float]]
    worst: dict[str, float]
    missed: list[str]
    failures: list[str]
    lost: int | None
    duplicated: int | None
    wrong: int | None
    verdict: str


class Report(Model):
    """A whole drill. ``audit`` is None when it couldn't be made; ``failures`` then says why."""

    name: str
    title: str
    faults: list[int]
    date: str
    stack: str
    machine: Machine
    rate: float
    goal: dict[str, float]
    calm: Span
    runs: list[Run]
    failures: list[str]
    audit: Audit | None

    @property
    def worst(self) -> dict[str, float]:
        """Plane → the longest interruption of all runs."""
        return {
            plane: max(run.gaps[plane].seconds for run in self.runs)
            for plane in PLANES
            if all(plane in run.gaps for run in self.runs) and self.runs
        }

    @property
    def missed(self) -> list[str]:
        """Goals that the worst run missed, in words."""
        worst = self.worst
        return [
            f"{plane}: {worst[plane]:.1f} s, the goal is {limit:g} s"
            for plane, limit in self.goal.items()
            if worst.get(plane, 0) > limit
        ]

    @property
    def all_failures(self) -> list[str]:
        runs = enumerate(self.runs, start=1)
        return [*(f"run {n}: {what}" for n, run in runs for what in run.failures), *self.failures]

    @property
    def verdict(self) -> str:
        """Loss is worse than a failed drill, which is worse than a slow recovery."""
        if self.audit and (self.audit.lost or self.audit.duplicated or self.audit.wrong):
            return LOST
        if self.all_failures or self.audit is None:
            return FAILED
        return MISSED if self.missed else PASSED

    def summary(self) -> Summary:
        audit = self.audit
        return Summary(
            **self.model_dump(include={"name", "title", "faults", "date", "stack", "rate", "goal"}),
            machine=self.machine,
            times=len(self.runs),
            baseline=_rounded(self.calm),
            runs=[_rounded(run) for run in self.runs],
            worst={plane: round(seconds, 2) for plane, seconds in self.worst.items()},
            missed=self.missed,
            failures=self.all_failures,
            lost=audit and audit.lost,
            duplicated=audit and audit.duplicated,
            wrong=audit and audit.wrong,
            verdict=self.verdict,
        )


def gaps_between(successes: Successes, since: float, until: float) -> dict[str, Interruption]:
    """Plane → its longest interruption in a range."""
    found = {
        plane: max(
            (longest(times, since, until) for times in successes[plane]),
            key=lambda gap: gap.seconds,
        )
        for plane in PLANES
        if successes.get(plane)
    }
    return {plane: _interruption(gap) for plane, gap in found.items()}


def markdown(report: Report) -> str:
    """The report as a person reads it."""
    return "\n".join(_lines(report)) + "\n"


def _lines(report: Report) -> Iterator[str]:
    yield f"# {report.title}: {report.verdict}"
    yield ""
    yield (
        f"`{report.name}` on {report.stack}, {report.date}; {report.rate:,.0f} events/s, "
        f"{len(report.runs)} runs, {report.machine.cores} cores, "
        f"{report.machine.memory_gib:.0f} GiB."
    )
    yield ""
    numbers = range(1, len(report.runs) + 1)
    yield (
        "| longest interruption (s) | calm | " + "".join(f"run {n} | " for n in numbers) + "goal |"
    )
    yield "|---|" + "---:|" * (len(report.runs) + 2)
    for plane in PLANES:
        if plane in report.calm.gaps:
            spans = [report.calm, *report.runs]
            cells = " | ".join(f"{span.gaps[plane].seconds:.2f}" for span in spans)
            goal = f"{report.goal[plane]:g}" if plane in report.goal else ""
            yield f"| {plane} | {cells} | {goal} |"
    yield ""
    yield "![Interruptions over time](gaps.svg)"
    yield ""
    if report.audit:
        audit = report.audit
        yield (
            f"Of {audit.acknowledged:,} acknowledged events {audit.lost} were lost, "
            f"{audit.duplicated} duplicated and {audit.wrong} results wrong. "
            f"{audit.failed} events failed, {audit.in_doubt} are in doubt."
        )
    for heading, problems in (("Goals missed", report.missed), ("Failures", report.all_failures)):
        if problems:
            yield from ("", f"## {heading}", "")
            yield from (f"- {problem}".replace("\n", "\n  ") for problem in problems)


def _interruption(gap: Gap) -> Interruption:
    return Interruption(start=gap.start, seconds=gap.seconds)


def _rounded(span: Span) -> dict[str, float]:
    return {plane: round(gap.seconds, 2) for plane, gap in span.gaps.items()}
