"""Rows that were computed again, held to those that are stored, value by value."""

import math
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, TypeVar

from millrace_jobs.output import WINDOW_START, Output

EXAMPLES = 5
# Sums of doubles depend on their order.
DOUBLES_DIFFER = 1e-9

Row = Mapping[str, Any]
RowT = TypeVar("RowT", bound=Row)


@dataclass
class Findings:
    """Rows: ``lost`` are missing, ``extra`` stand for no event, ``wrong`` have other values.

    Rows of windows that lack late events are ``excused`` where they would be lost or wrong: these
    ``late`` events came after their window was closed, so they are in the archive alone; so are
    those that are ``quarantined``, whenever that was, and those that are ``skipped``: offsets that
    the job leaves out for good. ``left_out`` says which, by topic, partition, first offset and the
    one after the last; ``lacking`` are the starts of windows that lack late events.
    """

    checked: int = 0
    lost: int = 0
    extra: int = 0
    wrong: int = 0
    excused: int = 0
    late: int = 0
    quarantined: int = 0
    skipped: int = 0
    excluded: int = 0
    since: int = 0
    lacking: list[str] = field(default_factory=list)
    left_out: list[tuple[str, int, int, int]] = field(default_factory=list)
    examples: list[str] = field(default_factory=list)

    def add(self, other: "Findings") -> None:
        """Of other rows."""
        self.checked += other.checked
        self.lost += other.lost
        self.extra += other.extra
        self.wrong += other.wrong
        self.excused += other.excused
        self.late += other.late
        self.lacking += other.lacking
        for example in other.examples:
            _show(self, example)

    def note(self, kind: str, example: str) -> None:
        """One row that is ``lost``, ``extra`` or ``wrong``."""
        setattr(self, kind, getattr(self, kind) + 1)
        _show(self, f"{kind}: {example}")


def compare(
    output: Output,
    computed: Iterable[Row],
    stored: Iterable[Row],
    lacking: Collection[datetime] = (),
) -> Findings:
    """Rows by their names, then value by value; sketches by their errors.

    Args:
        lacking: starts of the windows that lack late events.
    """
    truth, found = by_name(output, computed), by_name(output, stored)
    findings = Findings(checked=len(truth))
    for name in truth.keys() | found.keys():
        start, *_ = name
        if name not in found and start in lacking:
            findings.excused += 1
        elif name not in found:
            findings.note("lost", named(name))
        elif name not in truth:
            findings.note("extra", named(name))
        elif not (columns := differing(output, truth[name], found[name])):
            continue
        elif start in lacking:
            findings.excused += 1
        else:
            findings.note("wrong", f"{named(name)}: {columns}")
    return findings


def named(name: Iterable[Any]) -> str:
    """A row's name as people read it: 2026-01-01T00:00:00 /pages/1."""
    return " ".join(one.isoformat() if isinstance(one, datetime) else str(one) for one in name)


def by_name(output: Output, rows: Iterable[RowT]) -> dict[tuple[Any, ...], RowT]:
    """Rows by what tells them apart: the window's start, then the key."""
    return {(row[WINDOW_START], *(row[name] for name in output.key)): row for row in rows}


def differing(output: Output, truth: Row, found: Row) -> str:
    """Columns whose values differ more than they may; what was counted comes first."""
    return ", ".join(
        f"{name} {truth[name]} ≠ {found[name]}"
        for name, kind in output.values.items()
        if not _same(kind, output.approximate.get(name), truth[name], found[name])
    )


def _same(kind: str, error: float | None, truth: Any, found: Any) -> bool:
    if kind == "binary" and error is not None:
        return True  # a sketch's bytes depend on the order of its input
    if kind == "double" or error is not None:
        if truth is None or found is None:
            return truth is found
        # Three standard errors of the one estimate and three of the other.
        return math.isclose(truth, found, rel_tol=6 * error if error else DOUBLES_DIFFER)
    return bool(truth == found)


def _show(findings: Findings, example: str) -> None:
    if len(findings.examples) < EXAMPLES:
        findings.examples.append(example)
