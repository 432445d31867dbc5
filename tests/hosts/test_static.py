"""The running hosts as machines that somebody else made: the stack `static`, pointed at them."""

import json
import os
import subprocess
import sys
from pathlib import Path

from millrace.access import HOST_KEYS
from millrace.config import Environment, load_component, load_environment, load_events
from millrace.inventory import artifacts_url, build_inventory
from millrace.paths import ANSIBLE, REPO, stack_name
from millrace.plan import SHARED_COMPONENTS, Plan, make_plan
from millrace.setup.artifacts import read_manifest


def as_machines(plan: Plan) -> Plan:
    """The plan of the same hosts, where their list says who and where they are."""
    content = load_environment(stack_name()).model_dump(mode="json")
    content |= {
        "provider": "static",
        "machines": {
            "user": "millrace",
            "key": f".millrace/{plan.environment}/ssh_key",
            "artifacts": artifacts_url(plan),
            "hosts": {h.name: {"address": h.address, "zone": h.zone} for h in plan.hosts},
        },
    }
    components = {name: load_component(name) for name in [*plan.services, *SHARED_COMPONENTS]}
    environment = Environment.model_validate(content)
    return make_plan(plan.environment, environment, components, load_events())


def test_they_are_entered_and_checked_like_any_machine(plan: Plan, tmp_path: Path) -> None:
    made = build_inventory(as_machines(plan), read_manifest())
    variables = made["all"]["vars"]
    variables["ansible_ssh_private_key_file"] = str(
        REPO / variables["ansible_ssh_private_key_file"]
    )
    variables["ansible_ssh_common_args"] = " ".join(HOST_KEYS)
    script = tmp_path / "inventory"
    (tmp_path / "inventory.json").write_text(json.dumps(made))
    script.write_text(f"#!/bin/sh\ncat {tmp_path}/inventory.json\n")
    script.chmod(0o755)
    ansible = Path(sys.executable).with_name("ansible-playbook")
    done = subprocess.run(
        [ansible, "-i", script, "playbooks/preflight.yml"],
        cwd=ANSIBLE,
        env=os.environ,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
