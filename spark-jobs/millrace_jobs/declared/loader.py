"""A job that is one file: ``jobs/NAME.py`` with a function ``NAME``, or ``jobs/NAME.sql``.

The function, or the query, turns events into rows: grouped by ``window(event_time, …)`` and
whatever else names a row. A function of several streams gets a DataFrame for each, in the order in
which the settings name them; a query has a view for each, called like its stream. Everything else
that a job needs is made from that by `declared`.
"""

import importlib
import pkgutil
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from string import Template
from typing import Any, NamedTuple

from pyspark.sql import DataFrame, SparkSession

from millrace_jobs.spark_internals import java_session, jvm

JOBS = "millrace_jobs.jobs"

Rows = Callable[..., DataFrame]  # of a DataFrame for each stream, and the settings
EVENTS = ("events",)  # what a job reads whose settings name no stream


class Declaration(NamedTuple):
    """A job's function of its streams, and what the job says of itself."""

    rows: Rows
    summary: str


@dataclass(frozen=True)
class Place:
    """Where something stands: in a job's query, both from 1, or in a file of Python."""

    line: int
    column: int | None = None
    file: str = ""


class InvalidJob(Exception):
    """A declaration can't be run as a job; says of which one, why, and what to do.

    ``place`` is where in the job's file, with its settings filled in, as far as that is known.
    """

    def __init__(self, why: str, place: Place | None = None) -> None:
        self.place = place
        super().__init__(why)


def load(job: str, streams: Sequence[str] = EVENTS) -> Declaration:
    """The declaration in the job's file.

    Raises InvalidJob when there is no such file, or no such function in it.
    """
    if text := sql(job):
        return Declaration(query(job, text, streams), _comment(text))
    try:
        module = importlib.import_module(f"{JOBS}.{job}")
    except ModuleNotFoundError as error:
        if error.name != f"{JOBS}.{job}":
            raise
        raise InvalidJob(f"job {job}: neither {job}.py nor {job}.sql is among the jobs") from None
    rows = getattr(module, job, None)
    if rows is None:
        arguments = ", ".join(streams)
        raise InvalidJob(f"job {job}: {job}.py has no function {job}({arguments}, settings)")
    said = (rows.__doc__ or module.__doc__ or "").strip().partition("\n")[0]
    return Declaration(rows, said)


def query(job: str, text: str, streams: Sequence[str] = EVENTS) -> Rows:
    """A query as a function. ``$name`` in it is a setting, and each stream a view."""

    def rows(*arguments: Any) -> DataFrame:
        *events, settings = arguments
        try:
            filled = Template(text).substitute(settings)
        except (KeyError, ValueError) as error:
            raise InvalidJob(f"job {job}: {job}.sql: {error}: no such setting") from None
        session: SparkSession = events[0].sparkSession
        _refuse_commands(job, session, filled)
        for name, frame in zip(streams, events, strict=True):
            frame.createOrReplaceTempView(name)
        return session.sql(filled)

    return rows


def _refuse_commands(job: str, session: SparkSession, text: str) -> None:
    """A query reads. Anything else would take place while it is looked at."""
    plan = java_session(session).sessionState().sqlParser().parsePlan(text)
    node = plan.getClass().getName()
    command = jvm(session.sparkContext).java.lang.Class.forName(
        "org.apache.spark.sql.catalyst.plans.logical.Command"
    )
    if command.isInstance(plan):
        raise InvalidJob(f"job {job}: {job}.sql is no query but {node.rpartition('.')[2]}")


def sql(job: str) -> str | None:
    """The job's query as it is written; None if it is no query."""
    try:
        content = pkgutil.get_data(JOBS, f"{job}.sql")
    except OSError:
        return None
    return content.decode() if content else None


def _comment(text: str) -> str:
    first = text.lstrip().partition("\n")[0]
    return first.removeprefix("--").strip() if first.startswith("--") else ""
