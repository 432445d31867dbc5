"""Annotations of the operations page's pictures, by the exporters of Prometheus' own hosts.

An exporter tells what stands in files of its folder; of each the last scrape is what counts.
"""

import shlex
from subprocess import TimeoutExpired

from millrace.cluster import prometheus
from millrace.cluster.ssh import on_all, run_on
from millrace.common.errors import OperatorError
from millrace.plan import DATA_ROOT, Host, Plan

DRILL = "millrace_drill_started_timestamp_seconds"


def drill_began(plan: Plan, name: str, at: float) -> None:
    """Has both Prometheis know it (Unix seconds). A host that doesn't answer isn't worth an end."""
    told = drill_text(name, at)
    command = writing(f"{DATA_ROOT}/{plan.services['node_exporter'].unit}/drill.prom")

    def write(host: Host) -> None:
        try:
            run_on(plan, host, command, stdin=told)
        except TimeoutExpired:
            return

    on_all(plan.hosts_of("prometheus_server"), write)


def last_drill(plan: Plan) -> float | None:
    """Returns when a drill last began (Unix seconds); None if none is known, or no Prometheus
    answers."""
    try:
        known = prometheus.query(plan, f"{DRILL}[5m]")
    except OperatorError:
        return None
    return max((float(value) for series in known for _, value in series["values"]), default=None)


def drill_text(name: str, at: float) -> str:
    """Returns a drill's begin in Prometheus' format."""
    return f'# TYPE {DRILL} gauge\n{DRILL}{{name="{name}"}} {at:.0f}\n'


def writing(path: str) -> str:
    """A command that makes a file of its input, for everybody to read and never half of it."""
    part = shlex.quote(f"{path}.part")
    script = f"cat >{part} && chmod 0644 {part} && mv {part} {shlex.quote(path)}"
    return shlex.join(["sudo", "sh", "-c", script])
