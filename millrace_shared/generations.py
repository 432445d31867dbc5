"""Generations of a job's rows, and the overlay that says which of them readers see. Pure.

A job's stream writes generation 0. `millrace reconcile` counts a range of windows again, as another
generation, whose rows stand in the same tables, below partition keys of their own: so whoever knows
nothing of generations never meets them. docs/adr/0039-the-past-is-counted-beside-itself.md has why.

spark-jobs/schema.cql has the tables ``overlays`` and ``generations``. Times are UTC, with the zone.
"""

import json
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta

STREAM = 0  # the generation that a job's stream writes
TRAFFIC = "traffic"  # the name of the traffic job's rows; those of a declared job are its table
MOST_BUCKETS = 10_000  # of a day's rows of a declared job
OVERLAY = "SELECT content, revision FROM {keyspace}.overlays WHERE rows = ?"


class NothingBefore(Exception):
    """Readers have seen nothing else yet."""


@dataclass(frozen=True)
class Layer:
    """The windows that start in a range, ``end`` not included, are those of a generation.

    ``version`` is above that of each row that readers saw there before: theirs is this at least.
    """

    start: datetime
    end: datetime
    generation: int = STREAM
    version: int = 0

    def within(self, start: datetime, end: datetime) -> "Layer":
        return replace(self, start=max(self.start, start), end=min(self.end, end))


@dataclass(frozen=True)
class Overlay:
    """Which rows readers see: those of layers, which are in order and apart, and else the stream's.

    Attributes:
        revision: grows with each change.
        replaced: what readers saw before the last change, over the whole range of that.
        is_back: whether that change took another one back.
        is_told: whether the results topic has all of it.
    """

    revision: int = 0
    layers: tuple[Layer, ...] = ()
    replaced: tuple[Layer, ...] = ()
    is_back: bool = False
    is_told: bool = True

    def pieces(self, start: datetime, end: datetime) -> Iterator[Layer]:
        """The whole of a range, in order, each part with what readers see there."""
        for layer in self.layers:
            if layer.end <= start or layer.start >= end:
                continue
            if start < layer.start:
                yield Layer(start, layer.start)
            yield layer.within(start, end)
            start = min(layer.end, end)
        if start < end:
            yield Layer(start, end)

    def at(self, moment: datetime) -> Layer:
        """What readers see of the windows that start at a moment."""
        [found] = self.pieces(moment, moment + timedelta.resolution)
        return found

    def switched(self, to: Layer) -> "Overlay":
        """Readers see this layer, and else what they saw. A change that is made again still knows
        what it replaced."""
        there = tuple(self.pieces(to.start, to.end))
        return self._with([to], self.replaced if self.is_again(to) else there)

    def is_again(self, to: Layer) -> bool:
        """Whether the last change was a switch to this very layer, but for its version."""
        there = {layer.generation for layer in self.pieces(to.start, to.end)}
        is_seen = there == {to.generation} and self.changed == (to.start, to.end)
        return is_seen and not self.is_back

    def taken_back(self, version: int) -> "Overlay":
        """Readers see what they saw before the last switch, under a version above all. Taken back
        again, it is the same again.

        Raises NothingBefore.
        """
        if self.changed is None:
            raise NothingBefore
        there = tuple(self.pieces(*self.changed))
        layers, replaced = (there, self.replaced) if self.is_back else (self.replaced, there)
        new = [replace(layer, version=version) for layer in layers]
        return self._with(new, replaced, is_back=True)

    def told(self) -> "Overlay":
        """The same, once the results topic has all of it."""
        return replace(self, revision=self.revision + 1, is_told=True)

    @property
    def changed(self) -> tuple[datetime, datetime] | None:
        """The range of the last change."""
        return (self.replaced[0].start, self.replaced[-1].end) if self.replaced else None

    @property
    def version(self) -> int:
        """The highest that any change had."""
        return max((layer.version for layer in (*self.layers, *self.replaced)), default=0)

    def _with(
        self, new: list[Layer], replaced: tuple[Layer, ...], *, is_back: bool = False
    ) -> "Overlay":
        start, end = new[0].start, new[-1].end
        others = [
            part
            for layer in self.layers
            for part in (
                replace(layer, end=min(layer.end, start)),
                replace(layer, start=max(layer.start, end)),
            )
            if part.start < part.end
        ]
        layers = sorted([*others, *new], key=lambda layer: layer.start)
        return Overlay(self.revision + 1, tuple(layers), replaced, is_back, is_told=False)

    @property
    def content(self) -> str:
        said = {"layers": _said(self.layers), "replaced": _said(self.replaced)}
        return json.dumps(said | {"is_back": self.is_back, "is_told": self.is_told})

    @classmethod
    def parse(cls, content: str, revision: int) -> "Overlay":
        """Of what `content` gave. Raises ValueError or KeyError for anything else."""
        said = json.loads(content)
        layers, replaced = _read(said["layers"]), _read(said["replaced"])
        return cls(revision, layers, replaced, bool(said["is_back"]), bool(said["is_told"]))


NONE = Overlay()


def bucket_of(bucket: int, generation: int) -> int:
    """The partition of a day in which a declared job's rows of a bucket are."""
    return generation * MOST_BUCKETS + bucket


def window_of(window: str, generation: int) -> str:
    """The partition of a day in which traffic's windows of a size are."""
    return f"{window}#{generation}" if generation else window


def hour_of(hour: datetime, generation: int) -> datetime:
    """The partition in which an hour's pages and their list are: so many milliseconds later."""
    return hour + timedelta(milliseconds=generation)


def _said(layers: Iterable[Layer]) -> list[list[str | int]]:
    return [
        [layer.start.isoformat(), layer.end.isoformat(), layer.generation, layer.version]
        for layer in layers
    ]


def _read(layers: list[list[str | int]]) -> tuple[Layer, ...]:
    return tuple(
        Layer(_utc(start), _utc(end), int(generation), int(version))
        for start, end, generation, version in layers
    )


def _utc(text: str | int) -> datetime:
    return datetime.fromisoformat(str(text)).astimezone(UTC)
