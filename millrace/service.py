"""The streaming service: which version runs, upgrade and back-out, suspend and resume."""

import json
from collections.abc import Sequence
from datetime import UTC, datetime
from subprocess import TimeoutExpired
from typing import Any

from rich.console import Console
from rich.table import Table

from millrace.errors import OperatorError
from millrace.plan import Plan
from millrace.ssh import run_on

WAIT_SECONDS = 480  # on two busy cores a new driver alone takes two minutes
SSH_REFUSED = 255


class Gateway:
    """`job-gateway` on whichever edge host can be reached."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self.applications = list(plan.applications)

    def run(self, *words: str, timeout: float = 30) -> str:
        """What the command prints; OperatorError with its reason if it fails."""
        reasons = []
        for host in self._plan.hosts_of("job_gateway"):
            try:
                done = run_on(self._plan, host, ["sudo", "job-gateway", *words], timeout=timeout)
            except TimeoutExpired:
                reasons.append(f"{host.name}: no answer in {timeout:g} s")
                continue
            if done.returncode == 0:
                return done.stdout.strip()
            if done.returncode != SSH_REFUSED:
                raise OperatorError((done.stderr or done.stdout).strip())
            reasons.append(f"{host.name}: {done.stderr.strip()}")
        raise OperatorError("\n".join(reasons), "`millrace status` shows which hosts are down")

    def ask(self, *words: str) -> dict[str, Any]:
        answer: dict[str, Any] = json.loads(self.run(*words))
        return answer


def run_version(plan: Plan, version: str, console: Console) -> None:
    """Have a version that is on the hosts run, by hand-over: an upgrade or a back-out.

    OperatorError when a host lacks it or it can't read the checkpoints; nothing changes then.
    """
    gateway = Gateway(plan)
    for application in gateway.applications:
        console.print(gateway.run("start", application, version))
        _wait(gateway, application, version, console)


def suspend(plan: Plan, console: Console) -> None:
    """Drivers finish their batches and end; events wait in Kafka."""
    gateway = Gateway(plan)
    for application in gateway.applications:
        console.print(gateway.run("suspend", application))
        gateway.run("wait-stopped", application, timeout=WAIT_SECONDS)
        console.print(f"{application}: suspended; `millrace resume` goes on from the same event")


def resume(plan: Plan, console: Console) -> None:
    gateway = Gateway(plan)
    for application in gateway.applications:
        console.print(gateway.run("resume", application))
        version = gateway.ask("versions", application)["intended"]["version"]
        _wait(gateway, application, version, console)


def versions_view(plan: Plan) -> Table:
    """What may be run by `millrace upgrade VERSION`, the newest first."""
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


def _wait(gateway: Gateway, application: str, version: str, console: Console) -> None:
    words: Sequence[str] = ("wait", application, version, "--timeout", str(WAIT_SECONDS))
    console.print(gateway.run(*words, timeout=WAIT_SECONDS + 30))


def _state(intended: dict[str, str] | None, version: str) -> str:
    return intended["state"] if intended and intended["version"] == version else ""
