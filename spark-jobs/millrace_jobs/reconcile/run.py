"""Counts a job's past again beside its stream, and has readers see that; by the job gateway.

`python -m millrace_jobs.reconcile.run --config insights.json --job JOB`, in a Spark of its own. On
stdin is a question as JSON, see `answer`; the last line on stdout is an object: what that returns,
or an ``error``. How far it is goes to stderr.
"""

import argparse
import json
import logging
import sys
from collections.abc import Iterable
from datetime import datetime
from pathlib import Path
from typing import Any

from millrace_jobs import config
from millrace_jobs.query.context import StoredContext
from millrace_jobs.reconcile.count import Archived, count
from millrace_jobs.reconcile.plan import Asked, Everything, Refused
from millrace_jobs.reconcile.positions import Groups
from millrace_jobs.reconcile.show import show, told
from millrace_jobs.reconcile.switch import Publish, back, switch
from millrace_jobs.recount.counted import Counted, Record
from millrace_jobs.recount.generations import Book, Outrun
from millrace_jobs.recount.run import counted_of, use_utc
from millrace_jobs.recount.trouble import in_words
from millrace_jobs.sinks.results import Results

log = logging.getLogger(__name__)

Question = dict[str, Any]


def main() -> None:
    parser = argparse.ArgumentParser(description="Count a job's past again.")
    parser.add_argument("--config", type=Path, required=True, help="an application's configuration")
    parser.add_argument("--job", required=True)
    arguments = parser.parse_args()
    logging.basicConfig(level=logging.INFO, format="%(message)s")
    use_utc()
    try:
        question = json.loads(sys.stdin.read())
        found = answer(counted_of(arguments.job, config.load(arguments.config)), question)
    except (Refused, Outrun) as refusal:
        found = {"error": str(refusal)}
    except Exception as error:  # whoever asked is told
        log.exception("job %s can't be reconciled", arguments.job)
        found = {"error": in_words(error)}
    print(json.dumps(found), flush=True)


def answer(counted: Counted, question: Question) -> dict[str, Any]:
    """
    Args:
        question: ``do`` is ``count``, ``list``, ``show``, ``switch`` or ``back``. A count has the
            fields of `Asked`, or of `Everything` with ``start`` null, and ``archives``: stream →
            those of `Archived`. ``show`` and ``switch`` may have a ``generation``.
    """
    book = Book(counted.context.tables, counted.rows)
    number = question.get("generation")
    match question["do"]:
        case "count":
            groups = _groups(counted.context)
            asked = _asked(question)
            archives = {name: Archived(**one) for name, one in question["archives"].items()}
            one, rows = count(counted, asked, archives, groups)
            return told(one, book.overlay()) | {"rows": rows}
        case "list":
            overlay = book.overlay()
            return {"generations": [told(one, overlay) for one in book.all()]}
        case "show":
            return show(counted, number)
        case "switch":
            return {"revision": switch(counted, number, _publisher(counted.context)).revision}
        case "back":
            return {"revision": back(counted, _publisher(counted.context)).revision}
    raise Refused(f"nobody knows how to {question['do']}")


def _asked(question: Question) -> Asked | Everything:
    start, end = (
        datetime.fromisoformat(question[name]) if question[name] else None
        for name in ("start", "end")
    )
    if start is None:
        return Everything(end, question["without"], question["who"])
    assert end is not None
    return Asked(start, end, question["without"], question["closed"], question["who"])


def _groups(context: StoredContext) -> Groups:
    settings = context.config
    return Groups(settings.kafka, settings.names.kafka.group_prefix, context.settings)


def _publisher(context: StoredContext) -> Publish:
    """With a transactional id of its own: the job's is its driver's. Whoever comes second fences
    the first."""
    names = context.config.names.kafka
    name = f"{context.job}-reconcile"
    results = Results(context.config.kafka, names, name, context.settings, lambda: None)
    results.take_over()

    def publish(records: Iterable[Record]) -> None:
        results.publish_beside(records)

    return publish


if __name__ == "__main__":
    main()
