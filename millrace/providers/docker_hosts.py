"""Hosts that are containers: their power, their pulse and their network."""

import docker
from docker.errors import DockerException, NotFound
from docker.models.containers import Container

from millrace.common.errors import OperatorError, UnreachableError
from millrace.plan import Host, Plan

TABLE = "inet partition"

# One atomic step: a host that is partitioned already stays so while its rules are written anew. A
# table of its own before the host's firewall, which lets through what belongs to open connections.
PARTITION = """
nft -f - <<'RULES'
table {table}
delete table {table}
table {table} {{
    set others {{ type ipv4_addr; elements = {{ {others} }}; }}
    chain input {{ type filter hook input priority raw; ip saddr @others drop; }}
    chain output {{ type filter hook output priority raw; ip daddr @others drop; }}
}}
RULES
"""
REJOIN = """
nft list table {table} >/dev/null 2>&1 || exit 0
nft delete table {table}
"""


def container_name(plan: Plan, name: str) -> str:
    """Returns the name of the container of a host, or of the artifact server."""
    return f"{plan.cluster}-{name}"


class DockerHosts:
    """Each action is idempotent: what is so already stays as it is."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        try:
            self._client = docker.from_env()
        except DockerException as error:
            raise UnreachableError(f"Docker doesn't answer: {error}", "`docker info`") from error

    def kill(self, host: Host) -> None:
        """Power loss: nothing is flushed, nobody is told."""
        self.thaw(host)  # Docker refuses to kill what is paused
        container = self._container(host)
        if container.status == "running":
            container.kill()

    def start(self, host: Host) -> None:
        container = self._container(host)
        if container.status in ("created", "exited"):
            container.start()

    def freeze(self, host: Host) -> None:
        """Stops every process where it is; connections stay open and say nothing."""
        container = self._container(host)
        if container.status != "paused":
            _require_running(container).pause()

    def thaw(self, host: Host) -> None:
        container = self._container(host)
        if container.status == "paused":
            container.unpause()

    def partition(self, host: Host) -> None:
        """Drops all that goes to or comes from the cluster's other hosts; the operator gets in."""
        _run(_require_running(self._container(host)), partition_script(self._plan, host))

    def rejoin(self, host: Host) -> None:
        """Undoes a partition. A host that is off lost the rules with its power."""
        container = self._container(host)
        if container.status == "running":
            _run(container, REJOIN.format(table=TABLE))

    def _container(self, host: Host) -> Container:
        name = container_name(self._plan, host.name)
        try:
            return self._client.containers.get(name)
        except NotFound:
            raise OperatorError(f"there is no container {name}", "`make up` makes it") from None


def partition_script(plan: Plan, host: Host) -> str:
    """Shell that partitions a host from all others, run as root in its own network namespace."""
    others = ", ".join(other.address for other in plan.hosts if other != host)
    return PARTITION.format(table=TABLE, others=others)


def _require_running(container: Container) -> Container:
    if container.status != "running":
        raise OperatorError(
            f"{container.name} is {container.status}", "`millrace host start` or `thaw` it first"
        )
    return container


def _run(container: Container, script: str) -> None:
    code, output = container.exec_run(["sh", "-ec", script], user="root")
    if code:
        # What is printed before Docker's library reads is lost (docker-py#3332).
        said = output.decode().strip() or f"a script ended with {code} and told no reason"
        raise OperatorError(f"{container.name}: {said}")
