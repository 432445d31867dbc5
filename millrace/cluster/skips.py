"""Ranges of offsets that jobs leave out for good, as Cassandra's table ``skipped`` has them."""

from collections.abc import Iterable
from dataclasses import dataclass
from datetime import UTC, datetime

from millrace.plan import Plan


@dataclass(frozen=True)
class Skipped:
    """A range of one partition, ``end`` not included.

    ``lost``: retention had taken it. ``who`` is an operator, or the driver where no executor could
    hold a record.
    """

    job: str
    topic: str
    partition: int
    start: int
    end: int
    reason: str
    who: str
    lost: bool
    since: datetime

    @property
    def records(self) -> int:
        return self.end - self.start


def skipped(plan: Plan, jobs: Iterable[str]) -> list[Skipped]:
    """What these jobs leave out. Raises OperatorError without Cassandra."""
    from millrace.cluster import cassandra  # half of the time that any other command would take

    query = (
        'SELECT job, topic, "partition" AS part, first_offset, end_offset, reason, who, lost, since'
        f" FROM {plan.names.cassandra.keyspace}.skipped WHERE job = ?"
    )
    cassandra.quiet()
    with cassandra.reading(plan) as session:
        rows = cassandra.read_each(session, query, [(job,) for job in jobs])
    return [
        Skipped(
            *(row.job, row.topic, row.part, row.first_offset, row.end_offset),
            *(row.reason, row.who, row.lost, row.since.replace(tzinfo=UTC)),
        )
        for row in rows
    ]
