"""A machine that was not made from our image: what the role `machine` does before all others.

It is a container without the name table and the data volume that `local` gives its hosts. A
directory stands in for the disk: what only a device shows (its name, its formatting) isn't shown.
"""

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from docker.models.containers import Container

from millrace.plan import Plan
from tests.containers import on
from tests.hosts.bare import await_boot, bare_host, inventory_with
from tests.playbooks import Recap, changed, run_playbook, written

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
    with bare_host(plan, tmp_path) as host:
        on(host, BARE)
        yield host


def data(plan: Plan) -> str:
    """Where its one service keeps what it must not lose."""
    (volume,) = plan.host(NAME).volumes
    return volume.path


def prepare(plan: Plan, machine: Container, folder: Path) -> Recap:
    inventory = inventory_with(plan, machine, NAME)
    inventory["all"]["vars"]["millrace"]["provider"] = "static"
    volumes = [{"path": data(plan), "id": "vol-0"}]
    inventory["_meta"]["hostvars"][NAME]["machine_volumes"] = volumes
    playbook = folder / "machine.yml"
    playbook.write_text(json.dumps([{"hosts": NAME, "become": True, "roles": ["machine"]}]))
    disk = {"machine_device": DISK, "machine_mount_options": "bind,nofail"}
    return run_playbook(
        playbook, "-i", written(inventory, folder), "--extra-vars", json.dumps(disk)
    )


def test_it_becomes_a_host_of_the_plan(plan: Plan, machine: Container, tmp_path: Path) -> None:
    prepare(plan, machine, tmp_path)
    assert on(machine, "hostname") == NAME
    for host in plan.hosts:
        assert on(machine, f"getent hosts {host.name}").split()[0] == str(host.address)
    assert (
        on(machine, f"ls {data(plan)}") == "lost+found"
    )  # the disk, not a folder on the root disk
    unit = plan.services["redis"].unit
    assert f"RequiresMountsFor={data(plan)}" in on(
        machine, f"cat /etc/systemd/system/{unit}.service.d/*.conf"
    )
    for held in ("openjdk-", "redis"):
        assert f'"{held}"' in on(machine, "apt-config dump Unattended-Upgrade::Package-Blacklist")
    assert "madvise" in on(machine, "cat /etc/tmpfiles.d/millrace-machine.conf")
    assert on(machine, "systemctl is-enabled swap.target || true") == "masked"
    on(machine, OURS)
    assert changed(prepare(plan, machine, tmp_path)) == {}
    assert on(machine, "systemctl is-active redis-sentinel") == "active"

    machine.restart()
    await_boot(machine)
    assert on(machine, f"ls {data(plan)}") == "lost+found"  # fstab has it
