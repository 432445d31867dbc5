"""The streaming service: which version runs, upgrade and back-out, suspend and resume."""

import json
from datetime import UTC, datetime
from subprocess import TimeoutExpired
from typing import Any

from rich.console import Console
from rich.table import Table

from millrace.errors import OperatorError
from millrace.plan import Plan
from millrace.ssh import run_on

MARGIN = 30  # s, for SSH to tell what the gateway found
SSH_REFUSED = 255


class Gateway:
    """`job-gateway` on whichever edge host can be reached."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        self.applications = list(plan.applications)
        settings = plan.services["job_gateway"].settings["gateway.json"]
        self._longest = settings["deploy_timeout_seconds"] + MARGIN

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

    def wait(self, *words: str) -> str:
        """The same for a command that waits, as long as the plan says."""
        return self.run(*words, timeout=self._longest)

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


def _state(intended: dict[str, str] | None, version: str) -> str:
    return intended["state"] if intended and intended["version"] == version else ""
