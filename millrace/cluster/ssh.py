"""Commands on hosts, as the operator's user over SSH."""

import subprocess
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from subprocess import PIPE, CompletedProcess, Popen
from tempfile import TemporaryFile
from typing import TypeVar

from millrace.cluster import tunnel
from millrace.cluster.access import entry, leads_by_edge, sockets, target, way_in
from millrace.plan import Host, Plan
from millrace_shared.progress import told

Follow = Callable[[str], None]
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
    plan: Plan,
    host: Host,
    command: Sequence[str] | str,
    stdin: str = "",
    timeout: float = 30,
    follow: Follow | None = None,
) -> CompletedProcess[str]:
    """Runs a command on a host; returns its exit code and output, raises only on time-out.

    Args:
        follow: is told how far the command is, where it says so; see millrace_shared.progress.
    """
    remote = command if isinstance(command, str) else " ".join(command)
    words = [*ssh_command(plan, host), remote]
    if follow:
        return followed(words, stdin, timeout, follow)
    return subprocess.run(words, input=stdin, capture_output=True, text=True, timeout=timeout)


def followed(
    words: Sequence[str], stdin: str, timeout: float, follow: Follow
) -> CompletedProcess[str]:
    """Does what `subprocess.run` does, and hears of progress while the command runs."""

    def read(lines: Iterable[str]) -> str:
        said = []
        for line in lines:
            said.append(line)
            if (progress := told(line)) is not None:
                follow(progress)
        return "".join(said)

    with TemporaryFile("w+") as given, ThreadPoolExecutor(2) as readers:
        given.write(stdin)
        given.seek(0)
        with Popen(words, stdin=given, stdout=PIPE, stderr=PIPE, text=True) as process:
            output = readers.submit("".join, process.stdout or ())
            errors = readers.submit(read, process.stderr or ())
            try:
                code = process.wait(timeout)
            except BaseException:  # Ctrl-C, too
                process.kill()
                raise
            return CompletedProcess(words, code, output.result(), errors.result())


def on_all(hosts: Sequence[Host], ask: Callable[[Host], Answer]) -> dict[str, Answer]:
    """``ask`` of every host at once: host name → answer."""
    with ThreadPoolExecutor(max_workers=max(1, len(hosts))) as pool:
        return dict(zip((h.name for h in hosts), pool.map(ask, hosts), strict=True))
