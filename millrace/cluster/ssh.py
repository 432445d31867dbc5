"""Commands on hosts, as the operator's user over SSH."""

import os
import subprocess
import tempfile
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from millrace.cluster.access import HOST_KEYS, key_file, tunnel_options, user
from millrace.common.paths import REPO
from millrace.plan import Host, Plan

Answer = TypeVar("Answer")
CONNECT_TIMEOUT = 4  # s; a dead host answers nothing
KEPT = 30  # s that an idle connection is kept


def ssh_command(plan: Plan, host: Host) -> list[str]:
    """The ``ssh`` call that reaches a host of the plan with the stack's own key."""
    return [
        "ssh",
        "-i",
        str(REPO / key_file(plan)),
        *("-o", "BatchMode=yes", "-o", "LogLevel=ERROR", "-o", f"ConnectTimeout={CONNECT_TIMEOUT}"),
        # One connection to each host for many commands: a handshake costs more than what is asked.
        # It is given up as soon as its host is silent.
        *("-o", "ControlMaster=auto", "-o", f"ControlPath={_control_folder()}/%C"),
        *("-o", f"ControlPersist={KEPT}", "-o", "ServerAliveInterval=2"),
        *("-o", "ServerAliveCountMax=2"),
        *HOST_KEYS,
        *tunnel_options(plan),
        f"{user(plan)}@{host.address}",
    ]


def _control_folder() -> Path:
    """Short, as the path of a socket has to be."""
    folder = Path(tempfile.gettempdir()) / f"millrace-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


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
