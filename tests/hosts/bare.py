"""A container of the cluster's network that runs none of its services: a host nobody prepared."""

from collections.abc import Iterator
from contextlib import contextmanager
from ipaddress import IPv4Network
from pathlib import Path
from typing import Any

import docker
from docker.models.containers import Container

from infra.docker_provider import HostProvider
from infra.docker_resources import HostProps
from infra.local import network_settings
from millrace.cluster.access import key_file
from millrace.common.paths import REPO
from millrace.plan import Plan
from tests.containers import on
from tests.playbooks import inventory_of
from tests.waiting import wait_until


@contextmanager
def bare_host(plan: Plan, folder: Path) -> Iterator[Container]:
    client = docker.from_env()
    host = client.containers.get(f"{plan.cluster}-{plan.hosts[0].name}")
    (folder / "hosts").touch()
    props: HostProps = {
        "name": f"{plan.cluster}-bare",
        "hostname": "bare",
        "cluster": plan.cluster,
        "stack": plan.environment,
        "image": host.attrs["Config"]["Image"],
        "network": host.attrs["NetworkSettings"]["Networks"][plan.cluster]["NetworkID"],
        "network_name": plan.cluster,
        "address": str(IPv4Network(plan.network.subnet)[-6]),
        "hosts_file": str(folder / "hosts"),
        "state": "running",
        "volumes": [],
        "sysctls": network_settings(plan),
        "memory": 512,
        "cpu_weight": 1,
        "authorized_key": (REPO / key_file(plan)).with_suffix(".pub").read_text(),
    }
    made = HostProvider().create({**props})
    try:
        container = client.containers.get(made.id)
        await_boot(container)
        yield container
    finally:
        HostProvider().delete(made.id, {**props})


def await_boot(host: Container) -> None:
    state = "systemctl is-system-running --wait || true"
    wait_until(lambda: on(host, state) == "running", 60, "systemd has booted")


def inventory_with(plan: Plan, host: Container, name: str) -> dict[str, Any]:
    """The inventory of the plan, with this container in the place of one of its hosts."""
    inventory = inventory_of(plan)
    host.reload()
    address = host.attrs["NetworkSettings"]["Networks"][plan.cluster]["IPAddress"]
    inventory["_meta"]["hostvars"][name]["ansible_host"] = address
    return inventory
