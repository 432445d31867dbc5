"""What a run is: the few facts from which every one of its events follows."""

import json
from dataclasses import asdict, dataclass
from functools import cached_property
from hashlib import blake2b

from millrace.common.errors import OperatorError
from millrace.ledger.schedule import PROFILES, Schedule

MOST_EVENTS = 2**31 - 1  # numbers are kept as 32 bits
PAGES = 200


@dataclass(frozen=True)
class Spec:
    """``rate`` is events/s, ``started_ms`` is since 1970, ``lateness`` is in seconds.

    ``results_offsets`` are the ends of the results topic's partitions before the first event:
    everything that the jobs say of this run comes after them. ``pages`` is how many URLs there are.
    With a ``pool``, events so many numbers apart are alike but for their ids and times.
    """

    run: str
    cluster: str
    topic: str
    partitions: int
    acks: str
    rate: float
    seconds: float
    profile: str
    out_of_order: float
    late: float
    lateness: int
    seed: int
    started_ms: int
    results_offsets: list[int]
    pages: int = PAGES
    pool: int = 0

    def __post_init__(self) -> None:
        """Raises OperatorError on what no run can be."""
        if self.profile not in PROFILES:
            raise OperatorError(
                f"--profile {self.profile}: there is no such profile",
                f"one of {', '.join(PROFILES)}",
            )
        if not (self.rate > 0 and self.seconds > 0):
            raise OperatorError("--rate and --for must be more than nothing")
        if not (0 <= self.out_of_order <= 1 and 0 <= self.late <= 1):
            raise OperatorError("--out-of-order and --late are shares between 0 and 1")
        if self.pages < 1:
            raise OperatorError("--pages must be more than nothing")
        if self.rate * self.seconds > MOST_EVENTS:
            raise OperatorError(f"a run has at most {MOST_EVENTS:,} events")

    @cached_property
    def schedule(self) -> Schedule:
        return Schedule(self.profile, self.rate, self.seconds)

    @cached_property
    def prefix(self) -> str:
        """Returns what the ids of all its events begin with, and those of no other run's."""
        identity = f"{self.cluster} {self.run} {self.started_ms} {self.seed}"
        return blake2b(identity.encode(), digest_size=8).hexdigest() + "-"

    def to_json(self) -> str:
        return json.dumps(asdict(self), indent=2)

    @classmethod
    def from_json(cls, text: str) -> "Spec":
        return cls(**json.loads(text))
