"""Counts a declared job's rows again, from the archive, and holds what is stored to them.

The same function over the same events, at once and in batch, must give the same rows. Whoever leads
does it when asked (see Coordination), beside its streams: it has Spark, the code and the tables.
"""

import logging
import math
import threading
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime, timedelta
from typing import Any

from pyspark.sql import functions as F

from millrace_jobs.analysis import JOIN
from millrace_jobs.coordination import Coordination
from millrace_jobs.declared import Declared, window_name
from millrace_jobs.facts import Facts
from millrace_jobs.isolation import skips_of, without
from millrace_jobs.outputs import WINDOW_START, Output
from millrace_jobs.sinks import archive

log = logging.getLogger(__name__)

EXAMPLES = 5
POOL = "recount"
# Sums of doubles depend on their order.
DOUBLES_DIFFER = 1e-9

Row = Mapping[str, Any]


@dataclass
class Findings:
    """Rows: ``lost`` are missing, ``extra`` stand for no event, ``wrong`` have other values.

    ``late`` events came after their window was closed, so they are in the archive alone; so are
    those that are ``quarantined``, whenever that was.
    """

    checked: int = 0
    lost: int = 0
    extra: int = 0
    wrong: int = 0
    late: int = 0
    quarantined: int = 0
    examples: list[str] = field(default_factory=list)


def compare(output: Output, computed: Iterable[Row], stored: Iterable[Row]) -> Findings:
    """Rows by their names, then value by value; sketches by their errors."""
    truth, found = _by_name(output, computed), _by_name(output, stored)
    findings = Findings(checked=len(truth))
    for name in truth.keys() | found.keys():
        if name not in found:
            findings.lost += 1
            _show(findings, f"lost: {name}")
        elif name not in truth:
            findings.extra += 1
            _show(findings, f"extra: {name}")
        elif differing := _differing(output, truth[name], found[name]):
            findings.wrong += 1
            _show(findings, f"wrong: {name}: {differing}")
    return findings


def with_facts(
    output: Output, facts: Facts, computed: Iterable[Row], stored: Iterable[Row]
) -> list[Row]:
    """What was counted again, with the facts of the versions that the stored rows name."""
    found = _by_name(output, stored)
    return [
        facts.as_stored(row, found[name]) if name in found else row
        for name, row in _by_name(output, computed).items()
    ]


def recount(job: Declared, start: datetime, end: datetime) -> Findings:
    """Over the windows that start in a range of naive UTC time, ``end`` not included."""
    context, output = job.context, job.output
    session = context.spark.newSession()
    session.sparkContext.setLocalProperty("spark.scheduler.pool", POOL)
    partner = timedelta(seconds=context.settings.get(JOIN, 0))
    first, last = start - partner, end + timedelta(seconds=output.window_seconds) + partner
    skips = skips_of(context)
    events = [
        without(
            archive.read(
                session, context.config.archive_of(stream), stream.event_time, first, last
            ),
            stream.topic,
            skips,
        )
        for stream in context.streams
    ]
    inside = (F.col(WINDOW_START) >= F.lit(start)) & (F.col(WINDOW_START) < F.lit(end))
    computed = [row.asDict() for row in job.rows(events).where(inside).collect()]
    days = [start.date() + timedelta(days=n) for n in range((end.date() - start.date()).days + 1)]
    query = f'SELECT * FROM {{keyspace}}."{output.table}" WHERE day = ? AND bucket = ?'
    partitions = [(day, bucket) for day in days for bucket in range(output.buckets)]
    rows = (
        row._asdict() for partition in partitions for row in context.tables.select(query, partition)
    )
    stored = [row for row in rows if start <= row[WINDOW_START] < end]
    facts = Facts(context.tables, context.lookups, context.job)
    findings = compare(output, with_facts(output, facts, computed, stored), stored)
    late = "SELECT events FROM {keyspace}.late_events WHERE bucket = ? AND window = ? AND job = ?"
    name = window_name(output.window_seconds)
    findings.quarantined = len(skips)
    findings.late = sum(
        row.events for day in days for row in context.tables.select(late, (day, name, output.job))
    )
    return findings


class Recounts:
    """Answers what is asked in ZooKeeper, one question after the other, on a thread of its own."""

    def __init__(self, coordination: Coordination, jobs: Iterable[Declared]) -> None:
        self._coordination = coordination
        self._jobs = list(jobs)
        self._busy: threading.Thread | None = None

    def look(self) -> None:
        """Take up a question, if there is one and none is being answered."""
        if self._busy and self._busy.is_alive():
            return
        for job in self._jobs:
            if question := self._coordination.question(job.output.job):
                self._busy = threading.Thread(
                    target=self._answer, args=(job, question), name="recount", daemon=True
                )
                self._busy.start()
                return

    def _answer(self, job: Declared, question: dict[str, Any]) -> None:
        try:
            start, end = (datetime.fromisoformat(question[name]) for name in ("start", "end"))
            answer = asdict(recount(job, start, end))
        except Exception as error:  # whoever asked is told; the streams go on
            log.exception("recount of job %s", job.output.job)
            answer = {"error": f"{type(error).__name__}: {str(error).partition(chr(10))[0]}"}
        self._coordination.answer(job.output.job, answer | {"id": question["id"]})


def _by_name(output: Output, rows: Iterable[Row]) -> dict[tuple[Any, ...], Row]:
    return {(row[WINDOW_START], *(row[name] for name in output.key)): row for row in rows}


def _differing(output: Output, truth: Row, found: Row) -> str:
    """Columns whose values differ more than they may; what was counted comes first."""
    return ", ".join(
        f"{name} {truth[name]} ≠ {found[name]}"
        for name, kind in output.values.items()
        if not _same(kind, output.approximate.get(name), truth[name], found[name])
    )


def _same(kind: str, error: float | None, truth: Any, found: Any) -> bool:
    if kind == "binary" and error is not None:
        return True  # a sketch's bytes depend on the order of its input
    if kind == "double" or error is not None:
        if truth is None or found is None:
            return truth is found
        # Three standard errors of the one estimate and three of the other.
        return math.isclose(truth, found, rel_tol=6 * error if error else DOUBLES_DIFFER)
    return bool(truth == found)


def _show(findings: Findings, example: str) -> None:
    if len(findings.examples) < EXAMPLES:
        findings.examples.append(example)
