"""What became of each record of a request."""

from dataclasses import dataclass
from enum import Enum, auto

Place = tuple[int, int]  # partition and offset


class Kind(Enum):
    REFUSED = auto()  # for good: sent again, it would be refused again
    UNKNOWN = auto()  # Kafka was given it and didn't acknowledge it: it may be written or not
    UNWRITTEN = auto()  # it was not given to Kafka
    UNWRITABLE = auto()  # Kafka says no, and will until an operator changes something


@dataclass(frozen=True, slots=True)
class Failure:
    """A record that isn't known to be written. ``why`` is Kafka's name for it, or our own words."""

    kind: Kind
    why: str


Fate = Place | Failure
