"""What an audit found."""

from dataclasses import asdict, dataclass, field
from typing import Any

from rich.console import Group
from rich.text import Text

from millrace.common.tables import Answer, Column, Table

EXAMPLES = 5  # of each kind of finding
FINDINGS = ("lost", "duplicated", "wrong", "unseen")


@dataclass
class Plane:
    """One place where results are, compared with the truth.

    ``wrong`` values differ, ``unseen`` windows are absent, ``late`` events are missing rightly:
    they came after their window was closed. ``skipped`` ones are missing by somebody's word, or
    because no executor could hold them, ``excluded`` ones by `millrace reconcile --without`. Only
    of these three there may be any.
    """

    name: str
    checked: int = 0
    lost: int = 0
    duplicated: int = 0
    wrong: int = 0
    unseen: int = 0
    late: int = 0
    skipped: int = 0
    excluded: int = 0
    examples: list[str] = field(default_factory=list)

    @property
    def ok(self) -> bool:
        return not any(getattr(self, kind) for kind in FINDINGS)

    def find(self, kind: str, examples: list[str], count: int | None = None) -> None:
        """Adds findings; of their descriptions only the first few are kept."""
        setattr(self, kind, getattr(self, kind) + (len(examples) if count is None else count))
        kept = sum(example.startswith(f"{kind}: ") for example in self.examples)
        self.examples += [f"{kind}: {text}" for text in examples[: EXAMPLES - kept]]


@dataclass
class Report:
    """``truth`` are events of the audited runs, ``foreign`` the others in the same hours."""

    runs: list[str]
    truth: int
    in_doubt: int
    foreign: int
    planes: list[Plane]
    notes: list[str] = field(default_factory=list)
    unit: str = "events"

    @property
    def ok(self) -> bool:
        return all(plane.ok for plane in self.planes)

    @property
    def lost(self) -> int:
        return sum(plane.lost for plane in self.planes)

    @property
    def duplicated(self) -> int:
        return sum(plane.duplicated for plane in self.planes)

    @property
    def wrong(self) -> int:
        return sum(plane.wrong for plane in self.planes)

    @property
    def unseen(self) -> int:
        return sum(plane.unseen for plane in self.planes)

    def as_json(self) -> dict[str, Any]:
        sums = {kind: getattr(self, kind) for kind in FINDINGS}
        return {"ok": self.ok} | sums | asdict(self)


def report_view(report: Report) -> Answer:
    figures = ("checked", *FINDINGS, "late", "skipped", "excluded")
    table = Table(
        f"audit of {', '.join(report.runs)}",
        [Column("name", "plane"), *map(Column, figures)],
        [asdict(plane) | {"ok": plane.ok} for plane in report.planes],
        style=lambda row: "" if row["ok"] else "red",
    )
    examples = [f"  {plane.name}: {text}" for plane in report.planes for text in plane.examples]
    known = f"truth: {report.truth:,} {report.unit}"
    if report.unit == "events":
        known += (
            f", {report.in_doubt:,} of them had been in doubt; "
            f"{report.foreign:,} events of others in the same hours"
        )
    verdict = "exact: nothing lost, nothing twice" if report.ok else "NOT exact"
    colour = "green" if report.ok else "red"
    shown = Group(table, *examples, known, *report.notes, Text(verdict, f"bold {colour}"))
    return Answer(report.as_json(), shown)
