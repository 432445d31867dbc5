"""``millrace jobs skip`` and ``skips``: what a job leaves out for good, by an operator's word."""

import getpass
import socket
import uuid
from collections.abc import Iterable
from dataclasses import asdict
from typing import Annotated, Any

import typer

from millrace import completion
from millrace.cluster import zookeeper
from millrace.cluster.skips import Skipped, skipped
from millrace.common.consent import YesOption, agree
from millrace.common.console import Console
from millrace.common.durations import parse_duration
from millrace.common.errors import OperatorError
from millrace.common.paths import stack_name
from millrace.common.tables import Answer, Column, JsonOption, Row, Table, tell
from millrace.plan import Plan, load_plan

console = Console()


def skip_command(
    job: Annotated[
        str,
        typer.Argument(
            metavar="JOB", help="That is to go on behind them.", autocompletion=completion.jobs
        ),
    ],
    partition: Annotated[int, typer.Option(min=0, help="Of the topic.")],
    why: Annotated[str, typer.Option(help="For whoever reads it in a month.")],
    start: Annotated[
        int | None, typer.Option("--from", min=0, help="The first offset that is left out.")
    ] = None,
    end: Annotated[int | None, typer.Option("--to", help="The first one behind them.")] = None,
    lost: Annotated[
        bool, typer.Option("--lost", help="What retention took, in place of --from and --to.")
    ] = False,
    topic: Annotated[str | None, typer.Option(help="Where the job reads several streams.")] = None,
    wait: Annotated[
        str, typer.Option(help="How long the job's batch, and then the driver, are given.")
    ] = "300s",
    yes: YesOption = False,
) -> None:
    """Have a job leave out a range of offsets for good: recorded, and told by each audit.

    The job may run, have failed or be disabled; the others don't notice.

    millrace jobs skip archive --partition 0 --from 17 --to 18 --why "no executor can hold it"
    """
    plan = load_plan(stack_name())
    require_range(start, end, lost)
    source = topic_of(plan, job, topic)
    what = "what retention took" if lost else f"offsets {start} to {(end or 0) - 1}"
    agree(
        f"Have {job} in {plan.environment} leave out {what} of {source}-{partition}, for good?",
        yes=yes,
    )
    question = {
        "id": uuid.uuid4().hex,
        "topic": source,
        "partition": partition,
        "from": start,
        "to": end,
        "lost": lost,
        "why": why,
        "who": f"{getpass.getuser()} on {socket.gethostname()}",
    }
    path = f"{plan.names.zookeeper.jobs}/{job}/skip"
    answer = zookeeper.ask(plan, path, question, parse_duration(wait))
    if "error" in answer:
        raise OperatorError(f"job {job}: {answer['error']}", "nothing was changed")
    console.print(told(job, answer), soft_wrap=True)


def skips_command(
    job: Annotated[
        str | None,
        typer.Argument(
            metavar="[JOB]", help="By default all jobs.", autocompletion=completion.jobs
        ),
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """List what jobs leave out for good: which offsets, since when, by whose word and why."""
    plan = load_plan(stack_name())
    if job:
        require_job(plan, job)
    tell(Answer.of(skips=skips_table(skipped(plan, [job] if job else plan.jobs))), as_json)


def require_range(start: int | None, end: int | None, lost: bool) -> None:
    """Raises OperatorError unless there is either a range or --lost."""
    if lost != (start is None and end is None) or (start is None) != (end is None):
        raise OperatorError(
            "say either --from and --to, or --lost",
            "--lost is for offsets that retention took: from the job's position to the first one"
            " that Kafka has",
        )
    if start is not None and end is not None and start >= end:
        raise OperatorError(f"from {start} to {end} is no range", "--to isn't included")


def require_job(plan: Plan, job: str) -> None:
    """Raises OperatorError for a job that no application runs."""
    if job not in plan.jobs:
        known = ", ".join(plan.jobs)
        raise OperatorError(
            f"no application runs a job {job}; they run {known}", "nothing was changed"
        )


def topic_of(plan: Plan, job: str, topic: str | None) -> str:
    """The topic that is meant. Raises OperatorError where a job reads another, or several."""
    require_job(plan, job)
    topics = [plan.streams[name].topic for name in plan.spark.settings.streams_of(job)]
    if topic is None and len(topics) == 1:
        return topics[0]
    if topic not in topics:
        raise OperatorError(
            f"job {job} reads {', '.join(topics)}" + (f", not {topic}" if topic else ""),
            f"say which by --topic {topics[0]}",
        )
    return topic


def told(job: str, answer: dict[str, Any]) -> str:
    count = answer["to"] - answer["from"]
    return (
        f"{job}: leaves out {count:,} offsets of {answer['topic']}-{answer['partition']}, from"
        f" {answer['from']} to {answer['to'] - 1}; `millrace jobs skips {job}` lists it"
    )


def skips_table(found: Iterable[Skipped]) -> Table:
    """The newest last."""
    rows = [
        asdict(one) | {"records": one.records} for one in sorted(found, key=lambda one: one.since)
    ]
    columns = (
        Column("job", whole=True),
        Column("partition", show=lambda row: f"{row['topic']}-{row['partition']}", whole=True),
        Column("start", "offsets", lambda row: f"{row['start']} to {row['end'] - 1}", whole=True),
        Column("records", "number"),
        *map(Column, ("since", "who")),
        Column("reason", "why", _why),
    )
    return Table("left out for good", columns, rows)


def _why(row: Row) -> str:
    return f"lost by retention: {row['reason']}" if row["lost"] else row["reason"]
