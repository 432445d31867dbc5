"""The status as a person reads it. What came from the cluster is text, never markup."""

from datetime import UTC, datetime, timedelta

from rich.console import Group
from rich.panel import Panel
from rich.table import Table  # noqa: TID251 (of a Status, which JSON is of, too)
from rich.text import Text

from millrace.common.tables import Answer
from millrace.status.verdict import (
    DEGRADED,
    DOWN,
    HEALTHY,
    UNKNOWN,
    Component,
    HostLine,
    Status,
    age,
    moment,
)

MARKS = {
    HEALTHY: ("●", "green"),
    DEGRADED: ("▲", "yellow"),
    DOWN: ("✖", "red"),
    UNKNOWN: ("?", "magenta"),
}
SEVERITY_COLOURS = {"critical": "red", "warning": "yellow", "info": "dim"}
GIB = 2**30


def render(status: Status, cluster: str) -> Answer:
    """Components, hosts, alerts, events, applications and where to look next."""
    view = Group(
        _components(status, cluster),
        _as_of(status),
        _hosts(status),
        _alerts(status),
        _events(status),
        _footer(status),
    )
    return Answer(status.as_json(), view)


def _mark(state: str) -> Text:
    symbol, colour = MARKS[state]
    return Text(f"{symbol} {state}", style=colour)


def _components(status: Status, cluster: str) -> Table:
    table = Table(title=Text.assemble(f"{cluster}  ", _mark(status.state)), title_justify="left")
    table.add_column("component")
    table.add_column("state", no_wrap=True)
    table.add_column("seen")
    for component in status.components:
        table.add_row(component.name, _mark(component.state), _seen(component, status.at))
    return table


def _seen(component: Component, at: float) -> Text:
    seen = Text(component.seen)
    for problem in component.problems:
        seen.append(f"\n{problem}", style="dim")
    for silence in component.unanswered:
        seen.append(f"\nnot known: {silence}", style="dim")
    for alert, since in component.since.items():
        seen.append(f"\n{alert} for {age(at - moment(since))}", style="dim")
    return seen


def _as_of(status: Status) -> Text:
    """Returns how old what is shown may be: the one place that says so."""
    if status.figures_age is None:
        return Text("all of it was asked just now", style="dim")
    text = f"units, disks and lag as of up to {age(status.figures_age)} ago, by Prometheus"
    return Text(f"{text}; the rest was asked just now", style="dim")


def _hosts(status: Status) -> Table:
    table = Table(show_edge=True)
    for column in ("host", "zone", "address", "services"):
        table.add_column(column)
    table.add_column("restarts", justify="right")
    if status.resident is not None:
        table.add_column("resident", justify="right")
    for name, host in status.hosts.items():
        row: list[str | Text] = [
            name,
            host.zone,
            host.address,
            _services(host),
            _count(host.restarts),
        ]
        if status.resident is not None:
            row.append(f"{(host.resident or 0) / 2**20:,.0f} MiB")
        table.add_row(*row)
    return table


def _services(host: HostLine) -> Text:
    if host.state == DOWN:
        return Text(f"unreachable: {host.why}", style="red")
    if host.state == UNKNOWN:
        return Text(f"not known: {host.why}", style=MARKS[UNKNOWN][1])
    return Text(
        ", ".join(
            service if role in ("up", "down") else f"{service} ({role})"
            for service, role in host.services.items()
        )
    )


def _count(number: int | None) -> str:
    return "–" if number is None else str(number)


def _alerts(status: Status) -> Table | Text:
    if status.alerts is None:
        return Text(
            "whether alerts fire, and since when, nobody knows: no Prometheus answers",
            style="yellow",
        )
    if not status.alerts:
        return Text("no alert fires", style="green")
    table = Table(title="firing alerts", title_justify="left")
    for column in ("alert", "since (UTC)", "what", "runbook"):
        table.add_column(column)
    for alert in status.alerts:
        table.add_row(
            Text(alert.alert, style=SEVERITY_COLOURS[alert.severity]),
            Text(alert.since[:19].replace("T", " ")),
            Text(alert.summary),
            Text(f"runbooks/{alert.runbook}.md"),
        )
    return table


def _events(status: Status) -> Table | Text:
    if status.events is None:
        return Text("what happened lately nobody knows: no Prometheus answers", style="yellow")
    if not status.events:
        return Text("nothing happened in the last hours", style="dim")
    table = Table(title="last events", title_justify="left")
    for column in ("when (UTC)", "ago", "what"):
        table.add_column(column)
    for event in status.events:
        when = datetime.fromtimestamp(event.at, UTC)
        what = Text(f"{event.kind}: {event.text}")
        table.add_row(f"{when:%Y-%m-%d %H:%M:%S}", age(status.at - event.at), what)
    return table


def _footer(status: Status) -> Panel:
    lines = Text()
    for app in status.applications:
        running = timedelta(seconds=int(app.elapsed_seconds))
        lines.append(f"{app.name}: {app.state.lower()} for {running} ({app.id})\n")
    for job in status.progress:
        lines.append(f"{job.job}: batch {job.batch}")
        # Only a job with windows has one.
        lines.append(f", watermark {job.watermark}\n" if job.watermark else "\n")
    if status.resident is not None:
        lines.append(f"resident memory of all hosts: {status.resident / GIB:.1f} GiB\n")
    lines.append("live page: " + "  ".join(status.endpoints["insights"]))
    return Panel(lines, border_style="dim")
