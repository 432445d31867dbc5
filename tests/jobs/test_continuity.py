"""A checkpoint that doesn't go on where its job stopped is refused before anything is written."""

import pytest
from millrace_jobs.inputs.continuity import CheckpointMismatch, Found, Known, check, check_published

KNOWN = Known("a", 7)


@pytest.mark.parametrize("newest", [7, 8, 9])
def test_the_jobs_own_checkpoint_goes_on(newest: int) -> None:
    check("traffic", "hdfs://x", KNOWN, Found("a", newest))


@pytest.mark.parametrize(
    ("found", "says"),
    [
        (Found(None, -1), "is gone"),
        (Found("b", 9), "is another one, b"),
        (Found("a", 6), "back in time, to batch 6 from 7"),
    ],
)
def test_another_one_or_an_older_one_is_refused(found: Found, says: str) -> None:
    with pytest.raises(CheckpointMismatch, match=says):
        check("traffic", "hdfs://x", KNOWN, found)


def test_a_batch_that_was_published_and_not_committed_runs_again() -> None:
    check_published("traffic", 7, 7, same_offsets=True)
    check_published("traffic", 8, 7, same_offsets=False)
    check_published("traffic", 0, -1, same_offsets=False)


@pytest.mark.parametrize(("batch", "same_offsets"), [(6, False), (6, True), (7, False)])
def test_a_batch_of_an_older_copy_is_refused(batch: int, same_offsets: bool) -> None:
    with pytest.raises(CheckpointMismatch, match="back in time"):
        check_published("traffic", batch, 7, same_offsets=same_offsets)
