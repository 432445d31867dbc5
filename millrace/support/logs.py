"""`millrace logs`: what all hosts say, in the order of time."""

import heapq
import json
import re
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from datetime import UTC, datetime
from itertools import chain
from operator import attrgetter
from queue import Queue
from typing import Annotated

import typer
from rich.text import Text

from millrace import completion
from millrace.cluster.log_reader import LEVELS
from millrace.cluster.logs import CONTAINERS, SYSTEM, Entry, HostLog, Wanted, reading
from millrace.common.console import Console, visible, write
from millrace.common.durations import parse_duration
from millrace.common.errors import OperatorError, UnreachableError
from millrace.common.paths import stack_name
from millrace.plan import Host, Plan, load_plan

COLOURS = (
    *("cyan", "green", "magenta", "yellow", "blue", "bright_red"),
    *("bright_cyan", "bright_green", "bright_magenta", "bright_yellow", "bright_blue", "red"),
)
OF_LEVEL = {"error": "bold red", "warning": "bold yellow"}
_parts = completion.of_plan(lambda plan: [*plan.services, *CONTAINERS, SYSTEM])


def logs_command(
    since: Annotated[str, typer.Option(help="How far back: 90s, 10m, 2h.")] = "10m",
    follow: Annotated[
        bool, typer.Option("--follow", "-f", help="Go on with what is said, until Ctrl-C.")
    ] = False,
    grep: Annotated[str, typer.Option(help="Only what this regular expression is found in.")] = "",
    level: Annotated[
        str,
        typer.Option(
            help=f"Only this and worse: {', '.join(LEVELS)}.", autocompletion=lambda: [*LEVELS]
        ),
    ] = Wanted.level,
    host: Annotated[
        list[str] | None,
        typer.Option(help="Only this host; may be repeated.", autocompletion=completion.hosts),
    ] = None,
    group: Annotated[
        list[str] | None,
        typer.Option(help="Only hosts of this group.", autocompletion=completion.groups),
    ] = None,
    service: Annotated[
        list[str] | None,
        typer.Option(help="Only this service; or driver, executor, system.", autocompletion=_parts),
    ] = None,
    gc: Annotated[bool, typer.Option("--gc", help="Garbage collectors' logs, too.")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="An object on each line.")] = False,
) -> None:
    """Show what all hosts logged, in the order of time.

    With --follow what is said from then on stands below, in the order in which it comes.

    millrace logs --since 1h --level warning --service kafka_broker
    """
    plan = load_plan(stack_name())
    now = time.time()
    parts = parts_of(plan, service)
    hosts = hosts_of(plan, host, group, parts)
    began = now - parse_duration(since)
    wanted = Wanted(began, now, parts, pattern(grep), gc, known(level), follow)
    with reading(plan, hosts, wanted) as logs:
        entries = chain(merged(logs), arriving(logs) if follow else ())
        if as_json:
            for entry in entries:
                write(in_json(entry))
        else:
            show(plan, entries, Console(soft_wrap=True))
        silent = [f"{log.host}: {log.problem}" for log in logs if log.problem]
    if silent:
        raise UnreachableError(
            "\n".join(["not all hosts have answered:", *silent]),
            "the others' logs are complete; `millrace status` shows what is down",
        )


def merged(streams: Iterable[Iterable[Entry]]) -> Iterator[Entry]:
    """The entries of all streams in the order of time; those of one stream keep theirs."""
    return heapq.merge(*streams, key=attrgetter("time"))


def arriving(logs: Sequence[HostLog], now: Callable[[], float] = time.time) -> Iterator[Entry]:
    """What all hosts say from now on, in the order in which it comes.

    That a host isn't heard any more is an entry, too; without any left it ends.
    """
    come: Queue[Entry | None] = Queue()

    def hear(log: HostLog) -> None:
        for entry in log.coming():
            come.put(entry)
        why = log.problem or "its reader has ended"
        come.put(Entry(now(), log.host, "logs", "error", f"not heard any more: {why}"))
        come.put(None)

    for log in logs:
        threading.Thread(target=hear, args=[log], daemon=True).start()
    heard = len(logs)
    while heard:
        if entry := come.get():
            yield entry
        else:
            heard -= 1


def parts_of(plan: Plan, named: Sequence[str] | None) -> set[str]:
    """Returns what is logged by those names, the names of units among them; everything without
    any."""
    others = {*CONTAINERS, SYSTEM}
    if not named:
        return {*plan.services} | others
    units = {service.unit: name for name, service in plan.services.items()}
    parts = {units.get(name, name) for name in named}
    if unknown := parts - plan.services.keys() - others:
        raise OperatorError(
            f"{plan.environment} has no service {', '.join(sorted(unknown))}",
            f"they are {', '.join(sorted(plan.services.keys() | others))}",
        )
    return parts


def hosts_of(
    plan: Plan, named: Sequence[str] | None, groups: Sequence[str] | None, parts: set[str]
) -> list[Host]:
    """Returns the hosts that are named, or in a group that is, and have such logs, in the plan's
    order."""
    for kind, asked, known in (
        ("host", named, {host.name for host in plan.hosts}),
        ("group of hosts", groups, {host.group for host in plan.hosts}),
    ):
        if unknown := {*(asked or ())} - known:
            raise OperatorError(
                f"{plan.environment} has no {kind} {', '.join(sorted(unknown))}",
                f"they are {', '.join(sorted(known))}",
            )
    chosen = [
        host
        for host in plan.hosts
        if not (named or groups) or host.name in (named or ()) or host.group in (groups or ())
    ]
    found = [host for host in chosen if logged_on(host) & parts]
    if not found:
        raise OperatorError(
            f"no {', '.join(sorted(parts))} on {', '.join(host.name for host in chosen)}",
            "`millrace plan` shows what runs where",
        )
    return found


def logged_on(host: Host) -> set[str]:
    """Returns what logs on a host, in the words of `Wanted`."""
    containers = CONTAINERS if "nodemanager" in host.services else ()
    return {*host.services, *containers, SYSTEM}


def pattern(text: str) -> str:
    try:
        re.compile(text)
    except re.error as error:
        raise OperatorError(
            f"--grep {text}: not a regular expression: {error}",
            r"a character such as ( or [ is meant by \( or \[",
        ) from None
    return text


def known(level: str) -> str:
    if level not in LEVELS:
        raise OperatorError(f"there is no level {level}", f"they are {', '.join(LEVELS)}")
    return level


def show(plan: Plan, entries: Iterable[Entry], console: Console) -> None:
    """Prints each when it comes, in its host's colour; what is bad stands out."""
    colours = {host.name: COLOURS[n % len(COLOURS)] for n, host in enumerate(plan.hosts)}
    width = max(map(len, colours))
    for entry in entries:
        console.print(
            Text.assemble(
                (moment(entry.time), "dim"),
                (f" {entry.host:{width}} ", colours[entry.host]),
                (f"{entry.source:16} ", OF_LEVEL.get(entry.level, "bold")),
                printable(entry.text),
            )
        )


def in_json(entry: Entry) -> str:
    """For programs: whatever a service writes, time, host, source and level are fields."""
    when = datetime.fromtimestamp(entry.time, UTC).isoformat(timespec="milliseconds")
    return json.dumps({**entry._asdict(), "time": when})


def moment(seconds: float) -> str:
    """Returns a time in UTC, to the millisecond."""
    return datetime.fromtimestamp(seconds, UTC).isoformat(" ", "milliseconds")[:23]


def printable(text: str) -> str:
    """Further lines are indented: none can pass for an entry."""
    return visible(text).replace("\n", "\n    ")
