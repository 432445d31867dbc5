"""The streaming service: which version runs, upgrade and back-out, suspend and resume."""

from datetime import UTC, datetime

from rich.table import Table

from millrace.cluster.job_gateway import Gateway
from millrace.common.console import Console
from millrace.plan import Plan


def run_version(plan: Plan, version: str, console: Console) -> None:
    """Have a version that is on the hosts run, by hand-over: an upgrade or a back-out.

    OperatorError when a host lacks it or it can't read the checkpoints; nothing changes then.
    """
    gateway = Gateway(plan)
    for application in gateway.applications:
        console.print(gateway.wait("start", application, version))  # it analyses the jobs first
        console.print(gateway.wait("wait", application, version))


def suspend(plan: Plan, console: Console) -> None:
    """Drivers finish their batches and end; events wait in Kafka."""
    gateway = Gateway(plan)
    for application in gateway.applications:
        console.print(gateway.run("suspend", application))
        gateway.wait("wait-stopped", application)
        console.print(f"{application}: suspended; `millrace resume` goes on from the same event")


def resume(plan: Plan, console: Console) -> None:
    gateway = Gateway(plan)
    for application in gateway.applications:
        console.print(gateway.run("resume", application))
        version = gateway.ask("versions", application)["intended"]["version"]
        console.print(gateway.wait("wait", application, version))


def versions_view(plan: Plan) -> Table:
    """Returns what may be run by `millrace upgrade VERSION`, the newest first."""
    table = Table(title="versions on the edge hosts", title_justify="left")
    for column in ("application", "version", "deployed (UTC)", ""):
        table.add_column(column)
    gateway = Gateway(plan)
    for application in gateway.applications:
        found = gateway.ask("versions", application)
        for deployed in found["deployed"]:
            since = datetime.fromtimestamp(deployed["since"], UTC)
            state = _state(found["intended"], deployed["version"])
            table.add_row(application, deployed["version"], f"{since:%Y-%m-%d %H:%M:%S}", state)
    return table


def _state(intended: dict[str, str] | None, version: str) -> str:
    return intended["state"] if intended and intended["version"] == version else ""
