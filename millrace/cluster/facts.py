"""What hosts are like now, in their own words."""

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


class Silent(Exception):
    """A host doesn't answer; says why."""


@dataclass(frozen=True)
class Facts:
    """``files`` are those of its services' configuration: path → content."""

    facts: str
    files: dict[str, str]
    left_out: list[str]


def facts(plan: Plan, host: Host, most: int) -> Facts:
    """Asks a host for its facts: ``most`` bytes, and as many of configuration.

    Raises Silent if it doesn't say.
    """
    question = {
        "units": [plan.services[name].unit for name in host.services],
        "config": CONFIG_ROOT,
        "data": DATA_ROOT,
        "secrets": [secrets_folder()],
        "most": most,
    }
    command = ["sudo", "nice", "python3", "-", shlex.quote(json.dumps(question))]
    program = Path(host_facts.__file__).read_text()
    try:
        done = run_on(plan, host, command, stdin=program, timeout=FACTS_SECONDS)
    except subprocess.TimeoutExpired:
        raise Silent(f"no answer in {FACTS_SECONDS} s") from None
    if done.returncode:
        raise Silent((done.stderr.strip() or "unreachable").splitlines()[-1])
    return Facts(**json.loads(done.stdout))
