"""An operator has a job leave out a range of offsets, or what retention took: carried out between
two starts of the job's query, whether the job runs, has failed or is disabled."""

import logging
from typing import Any

from millrace_jobs.inputs.bounds import Bounds, bounds_of
from millrace_jobs.inputs.skipped import SkippedRange
from millrace_jobs.leader.skipping import position
from millrace_jobs.leadership.coordination import Coordination, Topic
from millrace_jobs.leadership.lease import LeaseLost
from millrace_jobs.quarantine.store import in_a_line
from millrace_jobs.query import skips
from millrace_jobs.query.heartbeat import JobRow, claim
from millrace_jobs.query.skips import Skip
from millrace_jobs.standby.ready import ReadyJob

log = logging.getLogger(__name__)

TOPIC: Topic = "skip"
Question = dict[str, Any]


class SkipRefused(Exception):
    """Says why the range can't be left out. Nothing was changed."""


def carry_out(ready: ReadyJob, question: Question, coordination: Coordination) -> None:
    """Note the skip, and answer who asked. The query that starts next is led around it."""
    context = ready.context
    answer: dict[str, Any]
    try:
        skip = asked_for(ready, question)
        if context.epoch is None:
            row = JobRow.read(context.tables, context.job)
            context.epoch = coordination.take_epoch(context.job, above=row.epoch)
            claim(context)
        skips.note(context, [skip], context.checkpoint.last_committed() + 1)
    except SkipRefused as error:
        answer = {"error": str(error)}
    except LeaseLost:  # who leads next takes the question up
        raise
    except Exception as error:  # whoever asked is told; the job goes on as it did
        log.exception("skipping for job %s", context.job)
        answer = {"error": f"{type(error).__name__}: {in_a_line(error)}"}
    else:
        log.warning("job %s skips %s for %s: %s", ready.name, skip.range, skip.who, skip.reason)
        one = skip.range
        answer = {"topic": one.topic, "partition": one.partition, "from": one.start, "to": one.end}
    coordination.answer(context.job, TOPIC, answer | {"id": question["id"]})


def refuse(job: str, question: Question, error: Exception, coordination: Coordination) -> None:
    """Tell who asked that the job can't even be prepared. It is asked anew once it can be."""
    log.warning("job %s can't skip: %s", job, in_a_line(error))
    reason = f"job {job} can't be prepared, so nothing was skipped: {in_a_line(error)}"
    coordination.answer(job, TOPIC, {"error": reason, "id": question["id"]})


def asked_for(ready: ReadyJob, question: Question) -> Skip:
    """What a question asks for. Raises SkipRefused."""
    context = ready.context
    topic, partition = question["topic"], int(question["partition"])
    if topic not in [stream.topic for stream in context.streams]:
        raise SkipRefused(f"job {context.job} doesn't read topic {topic}")
    bounds = bounds_of(context.config.kafka, context.settings, [(topic, partition)])
    at = position(context, ready.job).get(topic, {}).get(str(partition))
    kept = bounds[topic, partition]
    if question["lost"]:
        one = lost_range(topic, partition, at, kept)
    else:
        one = SkippedRange(topic, partition, int(question["from"]), int(question["to"]))
        require_ahead(one, kept.start if at is None else at, kept)
    return Skip(one, question["why"], question["who"], bool(question["lost"]))


def lost_range(topic: str, partition: int, at: int | None, kept: Bounds) -> SkippedRange:
    """From the job's position to the first offset that Kafka has. Raises SkipRefused."""
    if at is None or at >= kept.start:
        raise SkipRefused(
            f"nothing is lost: the job stands at offset {at}, and {topic}-{partition} begins at"
            f" {kept.start}"
        )
    return SkippedRange(topic, partition, at, kept.start)


def require_ahead(one: SkippedRange, at: int, kept: Bounds) -> None:
    """Raises SkipRefused for a range that the job has read, or that isn't there."""
    if one.start >= one.end:
        raise SkipRefused(f"from {one.start} to {one.end} is no range: --to isn't included")
    if one.start < at:
        raise SkipRefused(
            f"the job has read {one.topic}-{one.partition} up to offset {at}, so {one.start} is in"
            " its results: only what is ahead of it can be skipped"
        )
    if one.end > kept.end:
        raise SkipRefused(
            f"{one.topic}-{one.partition} ends at {kept.end}: what isn't there can't be skipped"
        )
