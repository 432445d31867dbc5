"""Which alerts a drill's fault fired, and whether they should have. Pure; times are Unix seconds.

An alert fires from the first evaluation that found it until the first one that didn't.
"""

from collections import defaultdict
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from millrace.common.durations import parse_duration
from millrace.config.alerts import SEVERITIES, Alert
from millrace.drill.report import AlertOutcomes, Fired
from millrace.drill.runbook import FrontMatter
from millrace.drill.timeline import Episode, Span
from millrace.plan import Plan

# Evaluations that a busy host may leave out without the alert having ended in between.
LEFT_OUT = 2
NOT_HELD = "not held long enough"
FIRED_ALREADY = "it fired already"
SILENT = "silent"


@dataclass(frozen=True)
class Expected:
    """By what a fault is to be told; ``alert`` is None where nothing is broken.

    It is due ``due_seconds`` after the injection, and gone ``gone_seconds`` after all is healthy.
    ``silent``: it isn't to fire, since the fault heals before it is due. Those in ``also`` may wake
    somebody as well, a silent one, too. Prometheis look every ``evaluation_seconds``; alerts look
    back for ``looks_back`` seconds, by name and severity.
    """

    alert: str | None
    due_seconds: float
    gone_seconds: float
    silent: bool
    also: Collection[str]
    evaluation_seconds: float
    looks_back: Mapping[tuple[str, str], float] = field(default_factory=dict)

    @property
    def known_seconds(self) -> float:
        """After its last evaluation, until it is known that an alert has ended."""
        return self.evaluation_seconds * (LEFT_OUT + 1)


class Firing(NamedTuple):
    """``until`` is None while it still fires."""

    alert: str
    severity: str
    since: float
    until: float | None


def expected(plan: Plan, about: FrontMatter, rules: Collection[Alert]) -> Expected:
    """Two scrapes, of which the last may time out, and an evaluation, beside the rule's own wait.

    Of several rules the first that fires tells of the fault.
    """
    settings = plan.services["prometheus_server"].settings["prometheus.yml"]
    scrape, timeout, every = (
        parse_duration(settings[name])
        for name in ("scrape_interval", "scrape_timeout", "evaluation_interval")
    )
    noticed = 2 * scrape + timeout + every
    mine = [rule for rule in rules if rule.alert == about.alert]
    return Expected(
        about.alert,
        noticed + min((rule.wait_seconds for rule in mine), default=0),
        noticed + max((rule.lasts_seconds for rule in mine), default=0),
        bool(about.silent),
        about.also,
        every,
        {  # of several rules the one that looks back furthest, which comes last
            (rule.alert, rule.severity): rule.looks_back_seconds
            for rule in sorted(rules, key=lambda rule: rule.looks_back_seconds)
        },
    )


def firings(series: Iterable[dict[str, Any]], wanted: Expected, now: float) -> list[Firing]:
    """Returns when each alert fired, out of the samples that Prometheis have, one by evaluation.

    Where it fires for several hosts, or by several Prometheis' finding, it fires once.
    """
    times: defaultdict[tuple[str, str], set[float]] = defaultdict(set)
    for one in series:
        labels = one["metric"]
        times[labels["alertname"], labels["severity"]].update(float(t) for t, _ in one["values"])
    longest = wanted.known_seconds
    return [
        Firing(*of, since, None if last + longest > now else last + wanted.evaluation_seconds)
        for of, seen in times.items()
        for since, last in spans(sorted(seen), longest)
    ]


def awaited(wanted: Expected, found: Iterable[Firing], since: float) -> list[Firing]:
    """Returns what began to fire then, still does, and is to end soon. Others explain a gap for a
    while."""
    return [
        firing
        for firing in found
        if firing.since >= since and firing.until is None
        if firing.alert == wanted.alert or firing.severity != "info"
    ]


def spans(times: Sequence[float], longest: float) -> Iterator[Span]:
    """Ranges of ascending times that are never further apart than ``longest``."""
    since = 0
    for number in range(1, len(times) + 1):
        if number == len(times) or times[number] - times[number - 1] > longest:
            yield Span(times[since], times[number - 1])
            since = number


def alert_outcomes(
    wanted: Expected,
    found: Iterable[Firing],
    episode: Episode,
    until: float,
    broken_before: float | None = None,
) -> AlertOutcomes:
    """Returns what began to fire from the injection on ``until`` nobody looked any more, or broke
    it again.

    Something else was broken at ``broken_before``: who looks back as far tells of that, too.
    """
    found = list(found)
    began = [f for f in found if episode.span.since <= f.since < until]
    fired = _fired([_as_known(f, until) for f in began], episode.span)
    note = _note(wanted, fired, found, episode)
    problems = [] if note else _own_problems(wanted, fired, episode, until)
    calm = float("inf") if broken_before is None else episode.span.since - broken_before
    return AlertOutcomes(
        fired=fired, note=note, problems=[*problems, *_other_problems(wanted, fired, calm)]
    )


def _as_known(firing: Firing, until: float) -> Firing:
    """Leaves out the end of what went on into the next fault, perhaps because of it."""
    return firing if firing.until is None or firing.until <= until else firing._replace(until=None)


def _fired(began: Sequence[Firing], span: Span) -> dict[str, Fired]:
    """Merges firings by name: one that fired several times, or by several rules, lasts from its
    first to its last."""
    result = {}
    for name in sorted({firing.alert for firing in began}):
        mine = [firing for firing in began if firing.alert == name]
        ends = [firing.until for firing in mine if firing.until is not None]
        result[name] = Fired(
            severity=min((firing.severity for firing in mine), key=SEVERITIES.index),
            after_seconds=round(min(firing.since for firing in mine) - span.since, 1),
            resolved_after_seconds=round(max(0.0, max(ends) - span.until), 1)
            if len(ends) == len(mine)
            else None,
        )
    return result


def _note(
    wanted: Expected, fired: dict[str, Fired], found: Sequence[Firing], episode: Episode
) -> str | None:
    """Why nothing can be said of the fault's own alert, if so."""
    if wanted.alert is None or wanted.alert in fired:
        return None
    if wanted.silent:
        return SILENT
    begun = episode.span.since
    if any(f.alert == wanted.alert and f.since < begun < (f.until or begun + 1) for f in found):
        return FIRED_ALREADY
    ends = {mark.name: mark.end for mark in episode.marks}
    held = ends.get("hold", begun) - ends.get("inject", begun)
    return NOT_HELD if held < wanted.due_seconds else None


def _own_problems(
    wanted: Expected, fired: dict[str, Fired], episode: Episode, until: float
) -> Iterator[str]:
    if wanted.alert is None:
        return
    own = fired.get(wanted.alert)
    if own is None:
        yield f"{wanted.alert} did not fire within {wanted.due_seconds:g} s"
        return
    if wanted.silent and wanted.alert not in wanted.also:
        yield f"{wanted.alert} fired, though the fault heals before it should"
        return
    injecting = next((m.end - m.start for m in episode.marks if m.name == "inject"), 0)
    if own.after_seconds > injecting + wanted.due_seconds:
        late = own.after_seconds - injecting
        yield f"{wanted.alert} fired after {late:.0f} s, due after {wanted.due_seconds:g} s"
    # Whether it lasted too long is known only if somebody looked for long enough.
    lasted = own.resolved_after_seconds
    if lasted is None:
        lasted = until - wanted.known_seconds - episode.span.until
    if lasted > wanted.gone_seconds:
        yield f"{wanted.alert} went on for {wanted.gone_seconds:g} s after all was healthy"


def _other_problems(
    wanted: Expected, fired: dict[str, Fired], calm_seconds: float
) -> Iterator[str]:
    """A control run is to be quiet; beside a fault's own alert others may wait for the morning.

    An alert that sums an hour up isn't this fault's alone if another was in that hour.
    """
    loud = ("critical", "warning") if wanted.alert is None else ("critical",)
    for name, one in fired.items():
        may_fire = name == wanted.alert or name in wanted.also
        is_of_others = wanted.looks_back.get((name, one.severity), 0) > calm_seconds
        if one.severity in loud and not may_fire and not is_of_others:
            yield f"{name} ({one.severity}) fired as well"
