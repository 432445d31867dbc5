"""Stands by, warm with all jobs, until this driver leads."""

import logging
import os
import threading
import time
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial

from millrace_jobs.inputs.checkpoint import Checkpoint
from millrace_jobs.inputs.continuity import CheckpointMismatch
from millrace_jobs.leadership.coordination import Coordination
from millrace_jobs.quarantine.store import in_a_line
from millrace_jobs.query import skips
from millrace_jobs.query.context import JobContext
from millrace_jobs.query.heartbeat import JobRow
from millrace_jobs.standby.executors import Executors
from millrace_jobs.standby.ready import ReadyJob, check_continuity, prepare
from millrace_jobs.standby.rehearsal import READY_BATCHES, Rehearsal

log = logging.getLogger(__name__)

ALL_SECONDS = 90.0  # an upgrade waits for it; jobs that are many are rehearsed as far as it takes


def await_leadership(
    enabled: Sequence[ReadyJob],
    workers: Executors,
    quiet_seconds: float,
    coordination: Coordination,
    *,
    rehearsing: bool,
) -> None:
    """Stand by until this driver leads.

    It stands in line as soon as it could lead, and is a standby for others, who might hand over to
    it, once it is warm: its first batch has no batch of the rehearsal beside it then.

    Who starts while nobody leads doesn't rehearse before: every second counts. But of two that
    start together one stands by, perhaps for weeks.

    Args:
        enabled: the jobs to rehearse with, in the order in which they are to start.
        quiet_seconds: after which it rehearses all the same. By then it is known who leads, and
            that one has had the cores to itself.
    """
    rehearsal = rehearse(enabled, workers, coordination) if enabled and rehearsing else None
    if not rehearsal:
        coordination.announce("standby")
        if coordination.lease.acquire(within=quiet_seconds):
            return
        rehearsal = rehearse(enabled, workers, coordination) if enabled else None
    coordination.lease.acquire()
    if rehearsal:
        rehearsal.end()


def rehearse(
    enabled: Sequence[ReadyJob], workers: Executors, coordination: Coordination
) -> Rehearsal | None:
    """As far as there is something to rehearse with; the rest goes on beside standing by.

    That is the first job that can be, as it will run. None where none can: what keeps them from it
    is for whoever leads to tell, and a cold standby is better than none.
    """
    for number, first in enumerate(enabled):
        try:
            rehearsal = rehearse_first(first, enabled[number:], workers, coordination)
            rehearsal.wait()
        except Exception as error:
            log.warning("rehearsal of %s: %s", first.name, in_a_line(error))
        else:
            workers.complete()
            return rehearsal
    workers.complete()
    coordination.announce_standby()
    return None


def rehearse_first(
    first: ReadyJob, enabled: Sequence[ReadyJob], workers: Executors, coordination: Coordination
) -> Rehearsal:
    """Runs the first job; then each runs for a few batches on all executors: one that was new to an
    archive took the first job's cores for half a minute.
    """
    context = first.context
    over = threading.Event()

    def ask_as_at_start() -> None:
        row = JobRow.read(context.tables, context.job)
        with suppress(CheckpointMismatch):  # for whoever leads to tell
            check_continuity(context, row.known, coordination.kept_checkpoint(context.job))
        context.checkpoint.last_committed()
        coordination.announce_rehearsal()

    def rehearse_all() -> None:
        workers.wait(over)
        deadline = time.monotonic() + ALL_SECONDS
        for one in enabled:
            if not over.is_set() and time.monotonic() < deadline:
                rehearse_on_all(one, workers.number, over)
        coordination.announce_standby()

    return Rehearsal(
        first.job,
        scratch(context, context.job),
        context.settings.rehearsal_pause_seconds,
        after_batch=ask_as_at_start,
        when_warm=rehearse_all,
        over=over,
        gives_way=lambda: coordination.is_leader_behind(),
        reading=partial(skips.rehearsed_around, context),
    )


def rehearse_on_all(one: ReadyJob, number: int, over: threading.Event) -> None:
    """Whatever fails is for whoever leads to tell: the driver can stand by for the first job."""
    pause = one.context.settings.rehearsal_pause_seconds
    try:
        wide = on_all_executors(one, number)
        folder = scratch(wide.context, f"{one.name}-on-all")
        Rehearsal(
            wide.job,
            folder,
            pause,
            over=over,
            batches=READY_BATCHES,
            reading=partial(skips.rehearsed_around, wide.context),
        ).wait()
    except Exception as error:  # HDFS's and Kafka's, too: no standby would ever be announced
        log.warning("rehearsal of %s: %s", one.name, in_a_line(error))


def on_all_executors(one: ReadyJob, number: int) -> ReadyJob:
    """The same with a task for each executor at least. A batch of a single task always goes to the
    one that Spark's Kafka source prefers, and the others would stay new to it."""
    context, settings = one.context, one.context.settings
    wide = replace(
        settings,
        tasks=max(settings.tasks, number),
        shuffle_partitions=max(settings.shuffle_partitions, number),
    )
    config = replace(context.config, settings=context.config.settings | {one.name: wide})
    return prepare(one.name, config, context.spark, context.tables, context.lease)


def scratch(context: JobContext, name: str) -> Checkpoint:
    folder = f"{context.config.checkpoints}/.rehearsal/{os.environ['CONTAINER_ID']}/{name}"
    return Checkpoint(context.spark, folder)
