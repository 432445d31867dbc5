"""Hosts that are containers: their power, their pulse and their network."""

import docker
from docker.errors import DockerException, NotFound
from docker.models.containers import Container

from millrace.common.errors import OperatorError
from millrace.plan import Host, Plan
from millrace.providers.docker import container_name

CHAIN = "millrace-partition"

# One atomic step: a host that is partitioned already stays so while its rules are written anew.
PARTITION = """
iptables-restore --wait --noflush <<'RULES'
*filter
:{chain} - [0:0]
{drops}
COMMIT
RULES
for hook in INPUT OUTPUT; do
    iptables -w -C $hook -j {chain} 2>/dev/null || iptables -w -I $hook -j {chain}
done
"""
REJOIN = """
iptables -w -n -L {chain} >/dev/null 2>&1 || exit 0
for hook in INPUT OUTPUT; do
    while iptables -w -D $hook -j {chain} 2>/dev/null; do :; done
done
iptables -w -F {chain}
iptables -w -X {chain}
"""


class DockerHosts:
    """Each action is idempotent: what is so already stays as it is."""

    def __init__(self, plan: Plan) -> None:
        self._plan = plan
        try:
            self._client = docker.from_env()
        except DockerException as error:
            raise OperatorError(f"Docker doesn't answer: {error}", "`docker info`") from error

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
        """Every process stops where it is; connections stay open and say nothing."""
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
            _run(container, REJOIN.format(chain=CHAIN))

    def _container(self, host: Host) -> Container:
        name = container_name(self._plan, host.name)
        try:
            return self._client.containers.get(name)
        except NotFound:
            raise OperatorError(f"there is no container {name}", "`make up` makes it") from None


def partition_script(plan: Plan, host: Host) -> str:
    """Shell that partitions a host from all others, run as root in its own network namespace."""
    addresses = [other.address for other in plan.hosts if other != host]
    drops = [f"-A {CHAIN} {side} {a} -j DROP" for a in addresses for side in ("-s", "-d")]
    return PARTITION.format(chain=CHAIN, drops="\n".join(drops))


def _require_running(container: Container) -> Container:
    if container.status != "running":
        raise OperatorError(
            f"{container.name} is {container.status}", "`millrace host start` or `thaw` it first"
        )
    return container


def _run(container: Container, script: str) -> None:
    code, output = container.exec_run(["sh", "-ec", script], user="root")
    if code:
        raise OperatorError(f"{container.name}: {output.decode().strip()}")
