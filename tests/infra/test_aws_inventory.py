"""The inventory of an AWS stack, as Ansible reads it: no hosts needed."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from millrace.common.paths import ANSIBLE
from millrace.inventory import build_inventory
from millrace.plan import load_plan

BIN = Path(sys.executable).parent
MANIFEST = {"store": {"version": "1", "file": "store-1.tar", "sha256": "0" * 64}}


def inventory(name: str, folder: Path) -> Path:
    """A script as `ansible/inventory/stack.py` is one, of what the stack would export."""
    plan = load_plan(name)
    devices = {
        volume.name: f"vol-{n}" for host in plan.hosts for n, volume in enumerate(host.volumes)
    }
    made = build_inventory(
        plan, MANIFEST, artifacts="https://bucket" if plan.aws else None, devices=devices
    )
    (folder / f"{name}.json").write_text(json.dumps(made))
    script = folder / name
    script.write_text(f"#!/bin/sh\ncat {folder}/{name}.json\n")
    script.chmod(0o755)
    return script


def ansible(command: str, *arguments: str | Path) -> str:
    done = subprocess.run(
        [BIN / command, *arguments],
        cwd=ANSIBLE,
        env=os.environ | {"ANSIBLE_LOCALHOST_WARNING": "false"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def groups(name: str, folder: Path) -> dict[str, list[str]]:
    """Each group of the inventory with the hosts that are its own."""
    listed = json.loads(ansible("ansible-inventory", "-i", inventory(name, folder), "--list"))
    return {group: of["hosts"] for group, of in listed.items() if "hosts" in of}


def test_the_groups_are_those_of_local(tmp_path: Path) -> None:
    local, dev = groups("local", tmp_path), groups("dev", tmp_path)
    ships_logs = dev.pop("cloudwatch_agent")  # the one component that only a cloud has
    assert sorted(ships_logs) == sorted(host.name for host in load_plan("dev").hosts)
    assert dev == local
    assert "kafka_broker" in local


@pytest.mark.parametrize("playbook", ["site.yml", "release-host.yml"])
def test_playbooks_read_it(tmp_path: Path, playbook: str) -> None:
    script = inventory("dev", tmp_path)
    ansible("ansible-playbook", "-i", script, f"playbooks/{playbook}", "--syntax-check")


def test_a_task_sees_where_its_volumes_are(tmp_path: Path) -> None:
    script = inventory("dev", tmp_path)
    variables = json.loads(ansible("ansible-inventory", "-i", script, "--host", "kafka-1"))
    assert variables["machine_volumes"] == [
        {"path": "/var/lib/millrace/kafka-broker", "id": "vol-0"}
    ]


@pytest.mark.parametrize("name", ["dev", "local"])
def test_programs_take_the_word_of_their_proxies_and_balancer_for_who_asks(name: str) -> None:
    plan = load_plan(name)
    made = build_inventory(plan, MANIFEST, artifacts="https://bucket")
    believed = made["all"]["vars"]["millrace"]["forwarders"]
    proxies = [host.address for host in plan.hosts_of("edge_proxy")]
    balancers = [subnet.cidr for subnet in plan.aws.subnets if subnet.public] if plan.aws else []
    assert believed == ["127.0.0.1", *proxies, *balancers]
