"""The status as a person reads it."""

from datetime import UTC, datetime, timedelta

from rich.console import Group
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from millrace.status.verdict import DEGRADED, DOWN, HEALTHY, Status, age, moment

MARKS = {HEALTHY: ("●", "green"), DEGRADED: ("▲", "yellow"), DOWN: ("✖", "red")}
SEVERITY_COLOURS = {"critical": "red", "warning": "yellow", "info": "dim"}
GIB = 2**30


def render(status: Status, cluster: str) -> Group:
    """Components, hosts, alerts, events, applications and where to look next."""
    return Group(
        _components(status, cluster),
        _hosts(status),
        _alerts(status),
        _events(status),
        _footer(status),
    )


def _mark(state: str) -> Text:
    symbol, colour = MARKS[state]
    return Text(f"{symbol} {state}", style=colour)


def _components(status: Status, cluster: str) -> Table:
    table = Table(title=Text.assemble(f"{cluster}  ", _mark(status.state)), title_justify="left")
    table.add_column("component")
    table.add_column("state", no_wrap=True)
    table.add_column("seen")
    for component in status.components:
        seen = Text(component.seen)
        for problem in component.problems:
            seen.append(f"\n{problem}", style="dim")
        for alert, since in component.since.items():
            seen.append(f"\n{alert} for {age(status.at - moment(since))}", style="dim")
        table.add_row(component.name, _mark(component.state), seen)
    return table


def _hosts(status: Status) -> Table:
    table = Table(show_edge=True)
    for column in ("host", "zone", "address", "services"):
        table.add_column(column)
    table.add_column("restarts", justify="right")
    table.add_column("resident", justify="right")
    for name, host in status.hosts.items():
        services = ", ".join(
            service if role in ("up", "down") else f"{service} ({role})"
            for service, role in host["services"].items()
        )
        table.add_row(
            name,
            host["zone"],
            host["address"],
            services if host["reachable"] else Text("unreachable", style="red"),
            str(host["restarts"]),
            f"{host['resident'] / 2**20:,.0f} MiB",
        )
    return table


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
            Text(alert["alert"], style=SEVERITY_COLOURS[alert["severity"]]),
            alert["since"][:19].replace("T", " "),
            Text(alert["summary"]),
            f"runbooks/{alert['runbook']}.md",
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
        when = datetime.fromtimestamp(event["at"], UTC)
        what = Text(f"{event['kind']}: {event['text']}")
        table.add_row(f"{when:%Y-%m-%d %H:%M:%S}", age(status.at - event["at"]), what)
    return table


def _footer(status: Status) -> Panel:
    lines = Text()
    for app in status.applications:
        age = timedelta(seconds=app["elapsedTime"] // 1000)
        lines.append(f"{app['name']}: {app['state'].lower()} for {age} ({app['id']})\n")
    for job in status.progress:
        watermark = job.get("watermark")  # only a job with windows has one
        lines.append(f"{job['job']}: batch {job['batch']}")
        lines.append(f", watermark {watermark}\n" if watermark else "\n")
    lines.append(f"resident memory of all hosts: {status.resident / GIB:.1f} GiB\n")
    lines.append("live page: " + "  ".join(status.endpoints["insight_api"]))
    return Panel(lines, border_style="dim")
