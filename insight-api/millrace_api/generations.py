"""Rows as readers see them: of each range those of the generation that its overlay names.

An answer reads its overlay once, before any rows, and keeps to it: so it is never a mixture of what
was seen before a switch and after it. `revision` tells several answers apart by that.
"""

from dataclasses import replace
from datetime import datetime
from typing import Annotated

from pydantic import Field

from millrace_api.ranges import Span, Window
from millrace_api.store import Pages, Store, TrafficRow
from millrace_shared.generations import Overlay

Revision = Annotated[
    int,
    Field(
        description="Grows when rows of the past are replaced by those of another count: answers"
        " with the same revision are of one piece.",
        examples=[0],
    ),
]


async def traffic(store: Store, overlay: Overlay, window: Window, span: Span) -> list[TrafficRow]:
    """The windows that start in the span, oldest first."""
    rows: list[TrafficRow] = []
    for piece in overlay.pieces(span.start, span.end):
        found = await store.traffic(window, Span(piece.start, piece.end), piece.generation)
        rows += [_at_least(row, piece.version) for row in found]
    return rows


async def pages_of(store: Store, overlay: Overlay, hour: datetime) -> Pages:
    """The pages of an hour, none if nothing was viewed."""
    return await store.pages_of(hour, overlay.at(hour).generation)


def _at_least(row: TrafficRow, version: int) -> TrafficRow:
    """A row that readers were switched to is newer than any that they saw before."""
    return row if row.version >= version else replace(row, version=version)
