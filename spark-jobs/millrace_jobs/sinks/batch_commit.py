"""The one sequence by which a batch of results is written exactly once, whoever runs it again.

1. `Results.check`: a checkpoint that went back in time is refused before anything is written.
2. The lease is confirmed, because `prepare` may write: a note of what the batch saw, under its
   version.
3. `prepare` makes the batch's rows and records. A batch that runs again makes the same, or newer
   ones of the same keys.
4. The lease is confirmed again: what came before may have taken longer than the lease lasts.
5. Rows are stored beside the transaction that publishes the records with the batch's position.
   Neither waits for the other, because each can be repeated alone: rows are whole values under the
   batch's version, and a transaction that took place is recognised by its position. A driver that
   dies in between leaves the batch uncommitted, so the next driver repeats both.

A version fences every write of a driver that was replaced, so a confirmation need not be exact: it
keeps a driver that lost its lease from working in vain, and from waiting for stores meanwhile.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from millrace_jobs.inputs.checkpoint import Offsets
from millrace_jobs.sinks.concurrently import concurrently
from millrace_jobs.sinks.results import Results


@dataclass(frozen=True)
class BatchIdentity:
    """What a batch is known by, everywhere that it is written.

    Attributes:
        checkpoint: the query's id; batches of another checkpoint have nothing to do with it.
        number: its number in that checkpoint.
        version: the fencing epoch of the driver, and the number: the timestamp of its writes.
        read: the offsets up to which it reads its sources.
    """

    checkpoint: str
    number: int
    version: int
    read: Offsets


@dataclass(frozen=True)
class Effects:
    """What a batch writes: ``records`` to the results topic, and rows by ``store``."""

    records: list[dict[str, Any]]
    store: Callable[[], None]


def commit(
    batch: BatchIdentity,
    results: Results,
    confirm: Callable[[], None],
    prepare: Callable[[], Effects],
) -> bool:
    """Write a batch exactly once; see above for the steps.

    Args:
        confirm: returns only while the driver surely leads, as `Lease.confirm` does.

    Returns:
        False if the batch's records had been published before, by a driver that then died.

    Raises CheckpointMismatch for a checkpoint that isn't the one that published last, LeaseLost
    when another driver leads, and what a store raises that doesn't answer for two minutes.
    """
    results.check(batch.checkpoint, batch.number, batch.read)
    confirm()
    effects = prepare()
    confirm()
    with concurrently(effects.store):
        return results.publish(batch.checkpoint, batch.number, batch.read, effects.records)
