"""Commands on hosts, as the operator's user over SSH."""

import subprocess
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

from millrace.cluster import tunnel
from millrace.cluster.access import entry, leads_by_edge, sockets, target, way_in
from millrace.plan import Host, Plan

Answer = TypeVar("Answer")
KEPT = 30  # s that an idle connection is kept


def ssh_command(plan: Plan, host: Host) -> list[str]:
    """The ``ssh`` call that reaches a host of the plan with the stack's own key."""
    if leads_by_edge(plan, host):
        tunnel.enter(plan)
    return [
        "ssh",
        *entry(plan),
        # One connection to each host for many commands: a handshake costs more than what is asked.
        *("-o", "ControlMaster=auto", "-o", f"ControlPath={sockets()}/%C"),
        *("-o", f"ControlPersist={KEPT}"),
        *way_in(plan, host),
        target(plan, host),
    ]


def run_on(
    plan: Plan, host: Host, command: Sequence[str] | str, stdin: str = "", timeout: float = 30
) -> subprocess.CompletedProcess[str]:
    """Runs a command on a host; returns its exit code and output, raises only on time-out."""
    remote = command if isinstance(command, str) else " ".join(command)
    return subprocess.run(
        [*ssh_command(plan, host), remote],
        input=stdin,
        capture_output=True,
        text=True,
        timeout=timeout,
    )


def on_all(hosts: Sequence[Host], ask: Callable[[Host], Answer]) -> dict[str, Answer]:
    """``ask`` of every host at once: host name → answer."""
    with ThreadPoolExecutor(max_workers=max(1, len(hosts))) as pool:
        return dict(zip((h.name for h in hosts), pool.map(ask, hosts), strict=True))
