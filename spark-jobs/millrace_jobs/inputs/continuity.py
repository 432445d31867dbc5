"""Does a checkpoint go on where its job stopped? Asked before anything is written.

Spark refuses a checkpoint that lost its metadata, logs or state. It accepts a folder that is gone,
and starts from the oldest event; and an older copy, whose next batches have numbers that the sinks
know already and leave out. The first would overwrite finished windows and archive twice, the second
would lose what was in those batches. What the job last wrote to ``job_progress`` tells.
"""

from dataclasses import dataclass

DEFECT = "docs/new-state.md has what to do; nothing was written"


class CheckpointMismatch(Exception):
    """The checkpoint isn't the one that the job wrote last, or is an older copy of it."""

    runbook = "checkpoint-lost"  # what an operator is to do


@dataclass(frozen=True)
class Known:
    """What the job wrote last: its checkpoint's id, and a batch that it had ended by then."""

    checkpoint_id: str
    batch: int


@dataclass(frozen=True)
class Found:
    """What is in the checkpoint's folder now; ``checkpoint_id`` is None if there is none."""

    checkpoint_id: str | None
    newest_batch: int


def check(job: str, location: str, known: Known, found: Found) -> None:
    """Raises CheckpointMismatch unless the job may go on from what was found."""
    if found.checkpoint_id is None:
        problem = f"it is gone, and batch {known.batch} was written by it"
    elif found.checkpoint_id != known.checkpoint_id:
        problem = f"it is another one, {found.checkpoint_id}; the job wrote {known.checkpoint_id}"
    elif found.newest_batch < known.batch:
        problem = f"it went back in time, to batch {found.newest_batch} from {known.batch}"
    else:
        return
    raise CheckpointMismatch(f"job {job}: the checkpoint {location}: {problem}. {DEFECT}")


def check_published(job: str, batch: int, published: int, *, same_offsets: bool) -> None:
    """Raises CheckpointMismatch for a batch that was published already with other records.

    A batch that its driver published and didn't commit runs again, over the same offsets; or over
    fewer, if the job has skipped the others since.
    """
    if batch < published:
        raise CheckpointMismatch(
            f"job {job}: batch {batch} runs again, but batch {published} was published: the"
            f" checkpoint went back in time. {DEFECT}"
        )
    if batch == published and not same_offsets:
        raise CheckpointMismatch(
            f"job {job}: batch {batch} was published for other offsets: the checkpoint went back"
            f" in time and came on again. {DEFECT}"
        )
