"""Counts a job's rows again, in a Spark of its own: the streams don't notice.

`python -m millrace_jobs.recount.run --config insights.json --job JOB --start … --end …`, by the job
gateway. The last line on stdout is an object: the findings, or an ``error``. How far it is goes to
stderr.

The same function over the same events, at once and in batch, must give the same rows.
"""

import argparse
import json
import logging
import os
import time
from collections.abc import Iterable
from dataclasses import asdict
from datetime import datetime
from pathlib import Path

from pyspark.sql import SparkSession

from millrace_jobs import config
from millrace_jobs.kinds import TRAFFIC, kind_of
from millrace_jobs.quarantine.search import Skip
from millrace_jobs.quarantine.store import skips_of
from millrace_jobs.query.context import StoredContext
from millrace_jobs.query.job import Countable
from millrace_jobs.query.skips import ranges_of
from millrace_jobs.recount.comparison import Findings
from millrace_jobs.recount.counted import Counted
from millrace_jobs.recount.declared_rows import DeclaredRows
from millrace_jobs.recount.generations import Book, Terms, seen, terms_of
from millrace_jobs.recount.traffic_rows import TrafficRows
from millrace_jobs.recount.trouble import in_words
from millrace_jobs.sinks import archive
from millrace_jobs.sinks.cassandra import Tables
from millrace_shared.generations import STREAM

log = logging.getLogger(__name__)


def main() -> None:
    parser = argparse.ArgumentParser(description="Count a job's rows again.")
    parser.add_argument("--config", type=Path, required=True, help="an application's configuration")
    parser.add_argument("--job", required=True)
    for end in ("--start", "--end"):
        parser.add_argument(end, type=datetime.fromisoformat, required=True, help="naive, in UTC")
    parser.add_argument("--generation", type=int, help="by default what readers see")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    use_utc()
    try:
        counted = counted_of(arguments.job, config.load(arguments.config))
        span = arguments.start, arguments.end
        answer = asdict(recount(counted, *span, arguments.generation))
    except Exception as error:  # whoever asked is told
        log.exception("job %s can't be counted again", arguments.job)
        answer = {"error": in_words(error)}
    print(json.dumps(answer), flush=True)


def counted_of(job: str, deployed: config.Config) -> Counted:
    """Raises TypeError for a job without rows."""
    if kind_of(job, deployed.settings[job].trigger) is TRAFFIC:
        return TrafficRows(context_of(job, deployed))
    return DeclaredRows(countable(job, deployed))


def countable(job: str, deployed: config.Config) -> Countable:
    """Raises TypeError for a job that isn't declared."""
    kind = kind_of(job, deployed.settings[job].trigger)
    found: Countable = kind.load_analysed()(context_of(job, deployed))
    return found


def context_of(job: str, deployed: config.Config) -> StoredContext:
    """The job's, with a Spark whose size whoever called has set."""
    spark = SparkSession.builder.appName(f"recount of {job}").getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    return StoredContext(job, deployed, spark, Tables(deployed))


def recount(
    counted: Counted, start: datetime, end: datetime, generation: int | None = None
) -> Findings:
    """Over the windows that start in a range of naive UTC time, ``end`` not included.

    In slices, because this is a guest on its host.

    Args:
        generation: by default what readers see, of each window.
    """
    context, book = counted.context, Book(counted.context.tables, counted.rows)
    ranges = ranges_of(context)
    aside = skips_of(context)
    findings = Findings()
    if generation:
        one = book.of(generation)
        start, end = max(start, one.start), min(end, one.done)
    for part, terms in terms_of(book, seen(book.overlay(), start, end), generation):
        skips = skips_at(book, part.generation, aside)
        found = counted.audit(part, terms, skips)
        findings.add(found)
        if part.generation != STREAM:
            excluded, since = left_out(context, part.start, part.end, terms)
            findings.excluded += excluded
            findings.since += since
    skips = [skip for skip in aside if not skip.retried]
    findings.quarantined = len(skips)
    findings.skipped = sum(one.end - one.start for one in ranges)
    findings.left_out = [
        *((one.topic, one.partition, one.start, one.end) for one in ranges),
        *((at.topic, at.partition, at.offset, at.offset + 1) for at in (s.place for s in skips)),
    ]
    return findings


def skips_at(book: Book, generation: int, aside: Iterable[Skip]) -> list[Skip]:
    """What the rows of a generation lack because it was put aside; a retry counts it in those that
    the stream wrote."""
    if generation == STREAM:
        return [skip for skip in aside if not skip.retried]
    since = book.of(generation).since
    return [skip for skip in aside if not skip.retried or skip.retried > since]


def left_out(
    context: StoredContext, start: datetime, end: datetime, terms: Terms
) -> tuple[int, int]:
    """How many events of a range are excluded, and how many came after the count."""
    excluded = since = 0
    for stream in context.streams:
        archived = archive.read(
            context.spark.newSession(), context.config.archive_of(stream), stream, start, end
        )
        excluded += terms.excluded(archived, stream.topic).count()
        since += terms.since(archived, stream.topic).count()
    return excluded, since


def use_utc() -> None:
    """Rows come to Python in local time without a zone: let that be UTC wherever this runs."""
    os.environ["TZ"] = "UTC"
    time.tzset()


if __name__ == "__main__":
    main()
