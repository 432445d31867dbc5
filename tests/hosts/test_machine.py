"""A machine that was not made from our image: what the role `machine` does before all others.

It is a container without the name table and the data volume that `local` gives its hosts. A
directory stands in for the disk: what only a device shows (its name, its formatting) isn't shown.
"""

import json
from collections.abc import Iterator
from ipaddress import IPv4Network
from pathlib import Path

import docker
import pytest
from docker.models.containers import Container

from infra.docker_provider import HostProvider
from millrace.cluster.access import key_file
from millrace.common.paths import REPO
from millrace.plan import Plan
from tests.e2e.support import wait_until
from tests.playbooks import Recap, changed, inventory_of, run_playbook, written

NAME = "redis-1"  # which of the plan's hosts it is to become
DISK = "/srv/disk"
# Its packages are there, and the network may have no mirror: to apt, the lists are an hour young.
BARE = (
    f"umount /etc/hosts /etc/hostname && mkdir {DISK} && touch {DISK}/lost+found /var/lib/apt/lists"
)


# A service of ours has the name of one that Debian starts by itself.
OURS = (
    "printf '[Service]\\nExecStart=sleep infinity\\n' > /etc/systemd/system/redis-sentinel.service;"
    " systemctl daemon-reload && systemctl start redis-sentinel"
)


@pytest.fixture
def machine(plan: Plan, tmp_path: Path) -> Iterator[Container]:
    client = docker.from_env()
    host = client.containers.get(f"{plan.cluster}-{NAME}")
    (tmp_path / "hosts").touch()
    props = {
        "name": f"{plan.cluster}-bare",
        "hostname": "bare",
        "cluster": plan.cluster,
        "stack": plan.environment,
        "image": host.attrs["Config"]["Image"],
        "network_name": plan.cluster,
        "address": str(IPv4Network(plan.network.subnet)[-6]),
        "hosts_file": str(tmp_path / "hosts"),
        "volumes": [],
        "memory": 512,
        "authorized_key": (REPO / key_file(plan)).with_suffix(".pub").read_text(),
    }
    made = HostProvider().create(props)
    try:
        container = client.containers.get(made.id)
        await_boot(container)
        assert container.exec_run(["sh", "-c", BARE]).exit_code == 0
        yield container
    finally:
        HostProvider().delete(made.id, props)


def await_boot(machine: Container) -> None:
    ask = ["systemctl", "is-system-running", "--wait"]
    wait_until(lambda: machine.exec_run(ask).output.strip() == b"running", 60, "systemd has booted")


def data(plan: Plan) -> str:
    """Where its one service keeps what it must not lose."""
    (volume,) = plan.host(NAME).volumes
    return volume.path


def prepare(plan: Plan, machine: Container, folder: Path) -> Recap:
    inventory = inventory_of(plan)
    inventory["all"]["vars"]["millrace"]["provider"] = "static"
    machine.reload()
    address = machine.attrs["NetworkSettings"]["Networks"][plan.cluster]["IPAddress"]
    inventory["_meta"]["hostvars"][NAME] |= {
        "ansible_host": address,
        "machine_volumes": [{"path": data(plan), "id": "vol-0"}],
    }
    playbook = folder / "machine.yml"
    playbook.write_text(json.dumps([{"hosts": NAME, "become": True, "roles": ["machine"]}]))
    disk = {"machine_device": DISK, "machine_mount_options": "bind,nofail"}
    return run_playbook(
        playbook, "-i", written(inventory, folder), "--extra-vars", json.dumps(disk)
    )


def test_it_becomes_a_host_of_the_plan(plan: Plan, machine: Container, tmp_path: Path) -> None:
    def on(command: str) -> str:
        code, output = machine.exec_run(["sh", "-c", command])
        assert code == 0, output.decode()
        return output.decode().strip()

    prepare(plan, machine, tmp_path)
    assert on("hostname") == NAME
    for host in plan.hosts:
        assert on(f"getent hosts {host.name}").split()[0] == str(host.address)
    assert on(f"ls {data(plan)}") == "lost+found"  # the disk, not a folder on the root disk
    unit = plan.services["redis"].unit
    assert f"RequiresMountsFor={data(plan)}" in on(
        f"cat /etc/systemd/system/{unit}.service.d/*.conf"
    )
    for held in ("openjdk-", "redis"):
        assert f'"{held}"' in on("apt-config dump Unattended-Upgrade::Package-Blacklist")
    assert "madvise" in on("cat /etc/tmpfiles.d/millrace-machine.conf")
    assert on("systemctl is-enabled swap.target || true") == "masked"
    on(OURS)
    assert changed(prepare(plan, machine, tmp_path)) == {}
    assert on("systemctl is-active redis-sentinel") == "active"

    machine.restart()
    await_boot(machine)
    assert on(f"ls {data(plan)}") == "lost+found"  # fstab has it
