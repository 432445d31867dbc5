"""When a drill did what, and when each plane was seen to work. Pure; times are Unix seconds."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from millrace.drill.gaps import Times, longest
from millrace.drill.runbook import Plane

# Plane → times of success; of `produce` one list for each partition, the worst of which counts.
Successes = Mapping[Plane, Sequence[Times]]


class Span(NamedTuple):
    since: float
    until: float


class Mark(NamedTuple):
    """A step of a runbook."""

    name: str
    start: float
    end: float


@dataclass(frozen=True)
class Episode:
    """A fault, or a time full of them. ``span`` is from the injection until all was healthy again.

    ``standby_since`` is when the standby driver began to stand by; None if none did. ``floor`` is
    the time before the fault in which the same was measured with nothing broken; None if it wasn't.
    """

    span: Span
    marks: list[Mark] = field(default_factory=list)
    failures: list[str] = field(default_factory=list)
    standby_since: float | None = None
    floor: Span | None = None

    @property
    def began(self) -> float:
        return self.floor.since if self.floor else self.span.since


@dataclass(frozen=True)
class Timeline:
    """What was seen of each plane, and the episodes in the order of time, at least one."""

    successes: Successes
    episodes: list[Episode]


def longest_gaps(successes: Successes, span: Span) -> dict[Plane, float]:
    """Plane → its longest interruption in the span, in seconds to the hundredth."""
    return {
        plane: round(max(longest(times, *span).seconds for times in successes[plane]), 2)
        for plane in Plane
        if successes.get(plane)
    }
