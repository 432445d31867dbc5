"""The streaming service: which version runs, upgrade and back-out, suspend and resume."""

from millrace.cluster.job_gateway import Gateway
from millrace.common.console import Console
from millrace.common.tables import Column, Table, time_of
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


def versions_table(plan: Plan) -> Table:
    """Returns what may be run by `millrace upgrade VERSION`, the newest first."""
    gateway = Gateway(plan)
    rows = [
        {
            "application": application,
            "version": deployed["version"],
            "deployed": time_of(deployed["since"]),
            "state": _state(found["intended"], deployed["version"]),
        }
        for application in gateway.applications
        for found in [gateway.ask("versions", application)]
        for deployed in found["deployed"]
    ]
    columns = (*map(Column, ("application", "version", "deployed")), Column("state", ""))
    return Table("versions on the edge hosts", columns, rows)


def _state(intended: dict[str, str] | None, version: str) -> str | None:
    return intended["state"] if intended and intended["version"] == version else None
