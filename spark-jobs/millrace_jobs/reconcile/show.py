"""How a generation differs from what readers see, or saw before they were switched to it."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from datetime import datetime
from typing import Any

from millrace_jobs.reconcile.switch import chosen
from millrace_jobs.recount.counted import Counted, Difference
from millrace_jobs.recount.generations import Book, Generation, Seen, seen
from millrace_shared.generations import Overlay

EXAMPLES = 5


@dataclass
class Comparison:
    """Rows that are otherwise, that are new, and that are gone. ``sums`` are of what they count:
    before and after."""

    changed: int = 0
    new: int = 0
    gone: int = 0
    sums: dict[str, list[int]] = field(default_factory=dict)
    examples: list[str] = field(default_factory=list)

    def add(self, one: Difference) -> None:
        kind = "new" if one.before is None else "gone" if one.after is None else "changed"
        setattr(self, kind, getattr(self, kind) + 1)
        for name in one.measures:
            sums = self.sums.setdefault(name, [0, 0])
            for side, row in enumerate((one.before, one.after)):
                sums[side] += (row or {}).get(name) or 0
        if len(self.examples) < EXAMPLES:
            self.examples.append(f"{kind}: {one.name}: {one.columns}")


def show(counted: Counted, number: int | None) -> dict[str, Any]:
    """A generation, by default the newest one, as far as it is counted. Raises Refused."""
    book = Book(counted.context.tables, counted.rows)
    one, overlay = chosen(book, number), book.overlay()
    found = Comparison()
    for piece in beside(overlay, one):
        for difference in counted.differences(piece.start, piece.end, piece.generation, one.number):
            found.add(difference)
    return told(one, overlay) | asdict(found)


def beside(overlay: Overlay, one: Generation) -> Iterator[Seen]:
    """What a generation is held to: what readers see, or saw before they were switched to it."""
    replaced = list(map(Seen.of, overlay.replaced))
    for piece in seen(overlay, one.start, one.done):
        if piece.generation != one.number:
            yield piece
            continue
        for was in replaced:
            if was.start < piece.end and piece.start < was.end:
                start, end = max(was.start, piece.start), min(was.end, piece.end)
                yield Seen(start, end, was.generation, was.version)


def told(one: Generation, overlay: Overlay) -> dict[str, Any]:
    """What a generation is, for people and scripts."""
    pieces = seen(overlay, one.start, one.end)
    return {
        "generation": one.number,
        "from": _iso(one.start),
        "to": _iso(one.end),
        "counted_to": _iso(one.done),
        "open_to": _iso(one.asked),
        "exclusions": [
            {"from": _iso(each.start), "to": _iso(each.end), "predicate": each.predicate}
            for each in one.exclusions
        ],
        "code": one.code,
        "since": _iso(one.since),
        "who": one.who,
        "seen": any(piece.generation == one.number for piece in pieces),
    }


def _iso(moment: datetime) -> str:
    return f"{moment.isoformat()}Z"
