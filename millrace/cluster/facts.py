"""What hosts are like now, and Prometheus' figures: asked there, so that SSH is all it takes."""

import json
import shlex
import subprocess
from dataclasses import dataclass
from pathlib import Path

from millrace.cluster import host_facts
from millrace.cluster.ssh import run_on
from millrace.plan import CONFIG_ROOT, DATA_ROOT, Host, Plan
from millrace.plan.receivers import secrets_folder

FACTS_SECONDS = 60
QUERY_SECONDS = 20


class Silent(Exception):
    """A host doesn't answer; says why."""


@dataclass(frozen=True)
class Facts:
    """``files`` are those of its services' configuration: path → content."""

    facts: str
    files: dict[str, str]
    left_out: list[str]


def facts(plan: Plan, host: Host, most: int) -> Facts:
    """Of a host: ``most`` bytes, and as many of configuration. Silent if it doesn't say."""
    question = {
        "units": [plan.services[name].unit for name in host.services],
        "config": CONFIG_ROOT,
        "data": DATA_ROOT,
        "secrets": [secrets_folder()],
        "most": most,
    }
    command = ["sudo", "nice", "python3", "-", shlex.quote(json.dumps(question))]
    program = Path(host_facts.__file__).read_text()
    return Facts(**json.loads(_answer(plan, host, command, FACTS_SECONDS, program)))


def figures(plan: Plan, host: Host, query: str, since: float, until: float, step: int) -> str:
    """What the Prometheus on that host has of a query: JSON, as its HTTP API gives it, a point each
    ``step`` seconds. Silent if it doesn't say."""
    port = plan.services["prometheus_server"].ports["http"]
    asked = {"query": query, "start": f"{since:.0f}", "end": f"{until:.0f}", "step": str(step)}
    command = ["curl", "--silent", "--show-error", "--fail", "--get"]
    command += ["--max-time", str(QUERY_SECONDS)]
    for name, value in asked.items():
        command += ["--data-urlencode", shlex.quote(f"{name}={value}")]
    command.append(f"http://{host.address}:{port}/api/v1/query_range")
    return _answer(plan, host, command, 2 * QUERY_SECONDS)


def _answer(plan: Plan, host: Host, command: list[str], seconds: float, stdin: str = "") -> str:
    try:
        done = run_on(plan, host, command, stdin=stdin, timeout=seconds)
    except subprocess.TimeoutExpired:
        raise Silent(f"no answer in {seconds:.0f} s") from None
    if done.returncode:
        raise Silent((done.stderr.strip() or "unreachable").splitlines()[-1])
    return done.stdout
