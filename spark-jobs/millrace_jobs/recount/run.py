"""Counts a declared job's rows again, in a Spark of its own: the streams don't notice.

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
from dataclasses import asdict
from datetime import datetime
from pathlib import Path

from pyspark.sql import SparkSession

from millrace_jobs import config
from millrace_jobs.declared.enrichment import Enrichment
from millrace_jobs.kinds import kind_of
from millrace_jobs.quarantine.store import in_a_line, skips_of
from millrace_jobs.query.context import StoredContext
from millrace_jobs.query.job import Countable
from millrace_jobs.query.skips import ranges_of
from millrace_jobs.recount.comparison import Findings, compare
from millrace_jobs.recount.rows import (
    computed_rows,
    late_events,
    stored_rows,
    with_facts,
)
from millrace_jobs.recount.slices import Slice, in_slices
from millrace_jobs.sinks.cassandra import Tables

log = logging.getLogger(__name__)


def main() -> None:
    parser = argparse.ArgumentParser(description="Count a declared job's rows again.")
    parser.add_argument("--config", type=Path, required=True, help="an application's configuration")
    parser.add_argument("--job", required=True)
    for end in ("--start", "--end"):
        parser.add_argument(end, type=datetime.fromisoformat, required=True, help="naive, in UTC")
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    use_utc()
    try:
        job = countable(arguments.job, config.load(arguments.config))
        answer = asdict(recount(job, arguments.start, arguments.end))
    except Exception as error:  # whoever asked is told
        log.exception("job %s can't be counted again", arguments.job)
        answer = {"error": f"{type(error).__name__}: {in_a_line(error)}"}
    print(json.dumps(answer), flush=True)


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


def recount(job: Countable, start: datetime, end: datetime) -> Findings:
    """Over the windows that start in a range of naive UTC time, ``end`` not included.

    In slices, because this is a guest on its host.
    """
    context, output = job.context, job.output
    skips = [skip for skip in skips_of(context) if not skip.retried]
    facts = Enrichment(context.tables, context.lookups, context.job)
    late = late_events(job, start, end)

    def compare_slice(part: Slice) -> Findings:
        stored = stored_rows(job, part)
        computed = computed_rows(job, part, skips)
        found = compare(output, with_facts(output, facts, computed, stored), stored, late.keys())
        log.info("%s to %s UTC: %d rows", part.start, part.end, found.checked)
        return found

    findings = Findings()
    for found in in_slices(Slice(start, end), output, compare_slice):
        findings.add(found)
    ranges = ranges_of(context)
    findings.quarantined = len(skips)
    findings.skipped = sum(one.end - one.start for one in ranges)
    findings.late = late.total()
    findings.lacking = [window.isoformat() for window in late]
    findings.left_out = [
        *((one.topic, one.partition, one.start, one.end) for one in ranges),
        *((at.topic, at.partition, at.offset, at.offset + 1) for at in (s.place for s in skips)),
    ]
    return findings


def use_utc() -> None:
    """Rows come to Python in local time without a zone: let that be UTC wherever this runs."""
    os.environ["TZ"] = "UTC"
    time.tzset()


if __name__ == "__main__":
    main()
