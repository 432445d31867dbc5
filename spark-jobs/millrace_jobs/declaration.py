"""A job that is one file: ``jobs/NAME.py`` with a function ``NAME``, or ``jobs/NAME.sql``.

The function, or the query, turns events into rows: grouped by ``window(event_time, …)`` and
whatever else names a row. Everything else that a job needs is made from that by `declared`.
"""

import importlib
import pkgutil
from collections.abc import Callable
from string import Template
from typing import Any

from pyspark.sql import DataFrame

JOBS = "millrace_jobs.jobs"

Settings = dict[str, Any]
Rows = Callable[[DataFrame, Settings], DataFrame]


class Refused(Exception):
    """A declaration can't be run as a job; says of which one, why, and what to do."""


def load(job: str) -> tuple[Rows, str]:
    """The job's function, and what it says of itself.

    Raises Refused when there is no such file, or no such function in it.
    """
    if text := _sql(job):
        return query(job, text), _comment(text)
    try:
        module = importlib.import_module(f"{JOBS}.{job}")
    except ModuleNotFoundError as error:
        if error.name != f"{JOBS}.{job}":
            raise
        raise Refused(f"job {job}: neither {job}.py nor {job}.sql is among the jobs") from None
    rows = getattr(module, job, None)
    if rows is None:
        raise Refused(f"job {job}: {job}.py has no function {job}(events, settings)")
    return rows, (rows.__doc__ or module.__doc__ or "").strip().partition("\n")[0]


def query(job: str, text: str) -> Rows:
    """A query as a function. ``$name`` in it is a setting, ``events`` the stream."""

    def rows(events: DataFrame, settings: Settings) -> DataFrame:
        try:
            filled = Template(text).substitute(settings)
        except (KeyError, ValueError) as error:
            raise Refused(f"job {job}: {job}.sql: {error}: no such setting") from None
        session = events.sparkSession
        _refuse_commands(job, session, filled)
        events.createOrReplaceTempView("events")
        return session.sql(filled)

    return rows


def _refuse_commands(job: str, session: Any, text: str) -> None:
    """A query reads. Anything else would take place while it is looked at."""
    plan = session._jsparkSession.sessionState().sqlParser().parsePlan(text)
    node = plan.getClass().getName()
    command = session._jvm.java.lang.Class.forName(
        "org.apache.spark.sql.catalyst.plans.logical.Command"
    )
    if command.isInstance(plan):
        raise Refused(f"job {job}: {job}.sql is no query but {node.rpartition('.')[2]}")


def _sql(job: str) -> str | None:
    try:
        content = pkgutil.get_data(JOBS, f"{job}.sql")
    except OSError:
        return None
    return content.decode() if content else None


def _comment(text: str) -> str:
    first = text.lstrip().partition("\n")[0]
    return first.removeprefix("--").strip() if first.startswith("--") else ""
