"""Any declared job: its rows are counted again from the archive, on an edge host.

By a Spark of its own there, with the code of the version that runs; see millrace_jobs.recount.run.
What is asked here has come to rest: the archive and the job have taken in all that is in the topic.
"""

import time
from collections.abc import Collection
from datetime import UTC, datetime, timedelta
from typing import Any

import numpy as np

from millrace.audit.positions import Positions
from millrace.audit.report import Plane, Report
from millrace.audit.second_look import Described, second_look
from millrace.audit.second_truth import NotExpressible
from millrace.audit.skipped import uncovered
from millrace.cluster import kafka, zookeeper
from millrace.cluster.hdfs import Hdfs
from millrace.cluster.insight_api import InsightApi
from millrace.cluster.job_gateway import Gateway
from millrace.cluster.skips import skipped
from millrace.cluster.ssh import Follow
from millrace.common.errors import OperatorError
from millrace.plan import Plan

LONGEST = timedelta(days=31)
DAY = timedelta(days=1)


def jobs_of(plan: Plan, streams: Collection[str]) -> list[str]:
    """The declared jobs that are running and read nothing but these streams.

    OperatorError when ZooKeeper doesn't say which are disabled.
    """
    settings, disabled = plan.spark.settings, zookeeper.disabled(plan)
    return [
        job
        for job in plan.jobs
        if settings.keeps_rows(job)
        and set(settings.streams_of(job)) <= set(streams)
        and job not in disabled
    ]


def audit_job(
    plan: Plan,
    job: str,
    start: datetime | None,
    end: datetime | None,
    wait: float = 120.0,
    generation: int | None = None,
    follow: Follow | None = None,
) -> Report:
    """Compares a job's rows, of windows that start from ``start`` to ``end``, with a recount.

    Args:
        start, end: with their zones. By default the last day of the job's events.
        wait: seconds that the jobs are given to catch up.
        generation: one that `millrace reconcile` has counted, or 0 for what the stream wrote; by
            default what readers see.
        follow: is told how far it is.

    Raises OperatorError when there is no such job, or it can't be counted again.
    """
    if job in plan.jobs and plan.spark.settings.is_real_time(job):
        raise OperatorError(
            f"job {job} runs in real time and keeps no rows that could be counted again",
            "its records in the results topic name the event that each is of, by its place",
        )
    window = window_of(plan, job)
    deadline = time.monotonic() + wait
    ends = await_archives(plan, job, wait)
    Positions(plan, Hdfs(plan)).wait_for(job, ends, deadline)
    newest = InsightApi(plan).progress(job).get("max_event_time")
    if newest is None:
        raise OperatorError(f"job {job} has not seen an event yet: there is nothing to audit")
    end = end or _whole(newest + window, window)
    start = start or end - DAY
    if job == kafka.JOB and (start, end) != (_whole(start, window), _whole(end, window)):
        raise OperatorError(f"traffic is audited by whole hours, not from {start} to {end}")
    if not timedelta(0) < end - start <= LONGEST:
        raise OperatorError(f"from {start} to {end} is no range of at most {LONGEST.days} days")
    answer = Gateway(plan).recount(job, _naive(start), _naive(end), generation, follow)
    found = report(job, answer, unarchived(plan, job))
    if why := _unlike_the_api(job, answer, generation):
        found.notes.append(f"no other engine has counted a part of job {job} again: {why}")
    else:
        look_again(plan, found, job, (start, end), answer)
    return found


def _unlike_the_api(job: str, answer: dict[str, Any], generation: int | None) -> str:
    """Why another engine can't be asked, which asks the API and knows no exclusions; else empty."""
    if job == kafka.JOB:
        return "it is a program"
    if generation is not None:
        return "readers may see another count"
    if answer.get("excluded") or answer.get("since"):
        return "readers see a count that leaves out events"
    return ""


def look_again(
    plan: Plan, found: Report, job: str, span: tuple[datetime, datetime], answer: dict[str, Any]
) -> None:
    """Adds what another engine says of a few windows, or why none can say it."""
    described = Described.of(said_of(plan, job))
    try:
        found.planes.append(second_look(plan, described, *span, answer))
    except NotExpressible as why:
        found.notes.append(f"no other engine has counted a part of job {job} again: {why}")


def await_archives(plan: Plan, job: str, wait: float) -> dict[str, np.ndarray]:
    """Returns where the streams end that a job reads, once their archives have all up to there."""
    require_archives(plan, job)
    streams = plan.spark.settings.streams_of(job)
    deadline = time.monotonic() + wait
    positions = Positions(plan, Hdfs(plan))
    ends = {stream: positions.ends_of(stream) for stream in streams}
    for stream in streams:
        positions.wait_for_archive(stream, ends[stream], deadline)
    return ends


def audit_job_since(plan: Plan, job: str, moment: datetime, wait: float) -> Report:
    """Audits a job as `audit_job` does, from the window on that the moment is in."""
    return audit_job(plan, job, moment - window_of(plan, job), None, wait)


def window_of(plan: Plan, job: str) -> timedelta:
    """Returns how long a job's windows are. Raises OperatorError when it has written nothing."""
    if job == kafka.JOB:
        return timedelta(hours=1)
    return timedelta(seconds=said_of(plan, job)["window_seconds"])


def said_of(plan: Plan, job: str) -> dict[str, Any]:
    """What the API says of a job. Raises OperatorError when it has written nothing yet."""
    declared = {one["job"]: one for one in InsightApi(plan).get("/v1/jobs")["jobs"]}
    if job not in declared:
        known = ", ".join(declared) or "none"
        raise OperatorError(
            f"no declared job {job} has written yet; those that have: {known}",
            "`millrace audit` without --job audits the jobs archive and traffic",
        )
    said: dict[str, Any] = declared[job]
    return said


def require_rows(plan: Plan, job: str) -> None:
    """Raises OperatorError unless an application runs the job, and it makes rows by windows."""
    settings = plan.spark.settings
    known = [one for one in plan.jobs if one == kafka.JOB or settings.keeps_rows(one)]
    if job not in known:
        raise OperatorError(
            f"no application runs a job {job} that makes rows of events",
            f"those are: {', '.join(known) or 'none'}",
        )


def require_archives(plan: Plan, job: str) -> None:
    """Raises OperatorError unless all that the job reads is archived."""
    settings = plan.spark.settings
    archives = {settings.archive_job(stream) for stream in settings.streams_of(job)}
    if missing := sorted(archives - set(plan.jobs)):
        raise OperatorError(
            f"job {job} can't be counted again: no application runs {' and '.join(missing)}",
            f"add it to applications in configs/environments/{plan.environment}.yaml, then"
            " `make up` and `make deploy`",
        )


def unarchived(plan: Plan, job: str) -> int:
    """Counts the records that the job may have read and its archives were made to leave out."""
    archives = {plan.spark.settings.archive_job(s) for s in plan.spark.settings.streams_of(job)}
    skips = skipped(plan, {job, *archives})
    return uncovered(
        [one for one in skips if one.job in archives and one.topic in plan.topics_of(job)],
        [one for one in skips if one.job == job],
    )


def report(job: str, answer: dict[str, Any], unarchived: int = 0) -> Report:
    """The recount's findings as an audit's. Rows of windows that lack late events are excused, and
    so are as many as records that the archive lacks; both are told."""
    if "error" in answer:
        raise OperatorError(f"job {job} could not be counted again: {answer['error']}")
    since = answer.get("since", 0)  # versions of the jobs that don't know of it have none
    plane = Plane(f"job {job}, rows", checked=answer["checked"], late=answer["late"] + since)
    plane.skipped, plane.excluded = answer["skipped"], answer.get("excluded", 0)
    plane.lost, plane.wrong = answer["lost"], answer["wrong"]
    plane.duplicated = answer["extra"]
    by_archive = plane.duplicated + plane.wrong
    if by_archive <= unarchived:
        plane.duplicated = plane.wrong = 0
    if not plane.ok:
        plane.examples = answer["examples"]
    notes = []
    if answer["quarantined"]:
        notes.append(
            f"{answer['quarantined']} records are quarantined, and left out here as well:"
            f" `millrace dead-letters list --job {job}`"
        )
    if answer["skipped"]:
        notes.append(
            f"{answer['skipped']} offsets are skipped, and left out here as well:"
            f" `millrace jobs skips {job}`"
        )
    if 0 < by_archive <= unarchived:
        notes.append(
            f"{by_archive} rows differ by records that the archive was made to leave out"
            f" ({unarchived} are, for ever or by retention): they can't be counted again"
        )
    if answer["excused"]:
        notes.append(
            f"{answer['excused']} rows are of windows that lack events which came too late"
            " (`late` counts those, for each of their windows)"
        )
    if since:
        notes.append(
            f"{since} events came after their windows were counted again:"
            f" `millrace reconcile {job}` counts them, too"
        )
    return Report([job], answer["checked"], 0, 0, [plane], notes, unit="rows")


def _whole(moment: datetime, window: timedelta) -> datetime:
    """The end of the window that a moment is in."""
    since = moment.astimezone(UTC) - datetime(1970, 1, 1, tzinfo=UTC)
    return moment + -since % window


def _naive(moment: datetime) -> datetime:
    """UTC without saying so, as Spark has it."""
    return moment.astimezone(UTC).replace(tzinfo=None)
