"""What a driver says of itself in ZooKeeper, APPLICATIONS/APPLICATION/drivers/RUN-ATTEMPT.

Drivers write it (millrace_jobs.leadership.coordination), the gateway and the toolkit read it. While
a version is handed over to another, drivers of both are read by one program: so keys that a reader
doesn't know are left out, and what an older driver doesn't say has a default. Types are checked.
"""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from millrace_shared import strict

# What a driver does, in the order in which it does it.
STATES = ("warming", "standby", "leading", "draining")


@dataclass(frozen=True)
class DriverRecord:
    """One living driver. Times are seconds since 1970.

    Attributes:
        run: YARN's application; ``attempt`` is which of its drivers this is, from 1.
        host: where it runs, with the processes ``jvm`` and ``python``.
        version: of the deployed application.
        state: one of `STATES`; ``since`` when.
        standing_by_since: None unless it stands by.
        rehearsed_at: when it last rehearsed as a standby; None before.
        jobs: what each job of a leading driver does.
        troubles: why some of these jobs don't run, or what they fail by.
        failed_since: since when those that have failed do.
        runbooks: the name of the page that says what to do, for each of these.
        behind_since: since when those are behind whose results are waited for.
    """

    run: str
    host: str
    state: str
    since: float
    attempt: int = 1
    version: str = ""
    jvm: int = 0
    python: int = 0
    standing_by_since: float | None = None
    rehearsed_at: float | None = None
    jobs: dict[str, str] = field(default_factory=dict)
    troubles: dict[str, str] = field(default_factory=dict)
    failed_since: dict[str, float] = field(default_factory=dict)
    runbooks: dict[str, str] = field(default_factory=dict)
    behind_since: dict[str, float] = field(default_factory=dict)

    @classmethod
    def read(cls, content: dict[str, Any]) -> "DriverRecord":
        """The record in a node's JSON. Raises `strict.Misconfigured`, which names the key."""
        return strict.read_known(cls, content)

    @classmethod
    def parse(cls, text: str | bytes) -> "DriverRecord":
        """The record of a node's value. Raises ValueError for what is no JSON, as `read` else."""
        return cls.read(json.loads(text))

    def to_json(self) -> str:
        return json.dumps(asdict(self))


def leader(drivers: Sequence[DriverRecord]) -> DriverRecord | None:
    """The driver that leads, None when none does.

    One that finishes its last batches still leads, as long as no other one does.
    """
    for state in ("leading", "draining"):
        if found := [driver for driver in drivers if driver.state == state]:
            # One that is frozen still says that it leads.
            return max(found, key=lambda driver: driver.since)
    return None
