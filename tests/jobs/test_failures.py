"""What follows when a job fails, whatever it fails by."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from millrace_jobs.inputs.continuity import CheckpointMismatch
from millrace_jobs.leader import failures
from millrace_jobs.leader.failures import FRESH, Attempts, BatchTooLong, Next
from millrace_jobs.quarantine.search import NotIsolatable, Quarantined

from millrace.drill.runbook import RUNBOOKS

ERRORS = (
    RuntimeError("a host"),
    NotIsolatable("its code"),
    BatchTooLong("an endless loop"),
    Quarantined("without a record"),
    CheckpointMismatch("it is gone"),
)
errors = st.sampled_from(ERRORS)


def after(attempts: Attempts, error: Exception, *, is_program: bool, now: float) -> Attempts:
    """By a driver that has nobody to hand over to."""
    if failures.following(attempts, error, is_program=is_program) is Next.AGAIN:
        return failures.again(attempts, error)
    return failures.failed(attempts, error, now=now, at=now)


@given(st.lists(errors, min_size=1), st.booleans())
def test_a_job_is_tried_for_ever_and_says_since_when_it_fails(
    happens: list[Exception], is_program: bool
) -> None:
    attempts, now, failed_at = FRESH, 0.0, None
    for error in happens:
        attempts = after(attempts, error, is_program=is_program, now=now)
        pause = attempts.again_at - now if attempts.again_at else 0.0
        assert 0 <= pause <= failures.LONGEST_PAUSE_SECONDS
        assert 1 <= attempts.patience <= failures.MOST_PATIENCE
        if attempts.failure:
            failed_at = now if failed_at is None else failed_at
            assert attempts.failure.since == failed_at
        now += pause + 1


@given(st.integers(0, 9), errors)
def test_a_declared_job_is_handed_to_nobody(in_vain: int, error: Exception) -> None:
    found = failures.following(Attempts(in_vain), error, is_program=False)
    assert found is not Next.HAND_OVER


@given(st.integers(0, 9), st.booleans())
def test_what_another_driver_would_find_is_handed_to_nobody(in_vain: int, program: bool) -> None:
    for error in ERRORS[1:]:
        found = failures.following(Attempts(in_vain), error, is_program=program)
        assert found is not Next.HAND_OVER


@given(st.booleans())
def test_a_first_error_is_answered_by_another_start(is_program: bool) -> None:
    for error in ERRORS[:-1]:
        assert failures.following(FRESH, error, is_program=is_program) is Next.AGAIN


@pytest.mark.parametrize(
    ("error", "runbook"), [(ERRORS[0], "job-failed"), (ERRORS[-1], "checkpoint-lost")]
)
def test_each_failure_has_a_page(error: Exception, runbook: str) -> None:
    found = failures.failed(FRESH, error, now=0, at=0)
    assert found.failure
    assert found.failure.runbook == runbook
    assert (RUNBOOKS / f"{runbook}.md").exists()
