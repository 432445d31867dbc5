"""The inventory of `dev` on AWS, with the running cluster in the place of its instances.

`dev` has the shape and the heaps of `local`. What a check can see is that every role takes AWS's
variables (the provider, the volumes to be mounted) and would converge such hosts.
"""

import json
import re
from pathlib import Path

import pytest

from millrace.cluster import tunnel
from millrace.inventory import artifacts_url
from millrace.plan import Host, Plan, load_plan
from tests.playbooks import inventory_of, run_playbook, written

ENTRY = ("ansible_user", "ansible_ssh_private_key_file")
WAY = "ansible_ssh_common_args"
ADDRESS = re.compile(r"\d+\.\d+\.\d+\.\d+")


def as_instances(running: Plan) -> dict:
    dev = load_plan("dev")
    devices = {
        volume.name: f"vol-{number:017x}"
        for number, volume in enumerate(volume for host in dev.hosts for volume in host.volumes)
    }
    # The preflight looks: these machines have the containers' memory, artifacts and cluster.
    dev = dev.model_copy(
        update={
            "cluster": running.cluster,
            "hosts": [
                host.model_copy(update={"memory": running.host(host.name).memory})
                for host in dev.hosts
            ],
        }
    )
    inventory = inventory_of(dev, artifacts=artifacts_url(running), devices=devices)
    entered = inventory_of(running)
    inventory["all"]["vars"] |= {name: entered["all"]["vars"][name] for name in ENTRY}
    for name, host in inventory["_meta"]["hostvars"].items():
        host[WAY] = entered["_meta"]["hostvars"][name][WAY]
    addresses = {
        reached: now
        for host in dev.hosts
        for reached, now in zip(
            ways_to(dev, host), ways_to(running, running.host(host.name)), strict=True
        )
    }
    text = ADDRESS.sub(lambda found: addresses.get(found[0], found[0]), json.dumps(inventory))
    return json.loads(text)


def ways_to(plan: Plan, host: Host) -> tuple[str, str]:
    """Its address among hosts, and on the machine of an operator."""
    return host.address, plan.reached_at(host.address)


def test_the_groups_are_the_same(plan: Plan) -> None:
    made, running = as_instances(plan), inventory_of(plan)
    assert {*made} == {*running} | {"cloudwatch_agent"}
    for group in {*running} - {"all", "_meta"}:
        assert made[group]["hosts"] == running[group]["hosts"]
    mounted = {name for name, host in made["_meta"]["hostvars"].items() if host["machine_volumes"]}
    assert mounted == {host.name for host in plan.hosts if host.volumes}


@pytest.mark.extended
def test_every_role_can_be_checked(plan: Plan, tmp_path: Path) -> None:
    inventory = written(as_instances(plan), tmp_path)
    tunnel.addresses(plan, "kafka_broker", "operator")  # a role asks for the topics from here
    recap = run_playbook("site.yml", "-i", inventory, "--check", "--limit", "*-1")
    assert {host.name for host in plan.hosts if host.index == 1} <= {*recap}
