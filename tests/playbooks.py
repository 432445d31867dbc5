"""Playbooks as an operator runs them, with the stack's inventory or a test's own."""

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from millrace.cluster import tunnel
from millrace.cluster.ssh import on_all, run_on
from millrace.common.paths import ANSIBLE, stack_name
from millrace.inventory import build_inventory, entered
from millrace.plan import Host, Plan, load_plan
from millrace.setup.artifacts import read_manifest

Recap = dict[str, tuple[str, ...]]
DEPRECATION = "[DEPRECATION WARNING]"
RECAP = re.compile(r"^(\S+)\s+: ok=\d+\s+changed=(\d+)\s+unreachable=(\d+)\s+failed=(\d+)", re.M)


def run_playbook(playbook: str | Path, *arguments: str) -> Recap:
    """Host → (changed, unreachable, failed) of a run that must succeed, by no deprecated way."""
    tunnel.enter(load_plan(stack_name()))
    ansible = Path(sys.executable).with_name("ansible-playbook")
    environment = os.environ | {
        "MILLRACE_STACK": stack_name(),
        "ANSIBLE_ROLES_PATH": str(ANSIBLE / "roles"),
        "PATH": f"{ansible.parent}{os.pathsep}{os.environ['PATH']}",
    }
    done = subprocess.run(
        [ansible, ANSIBLE / "playbooks" / playbook, *arguments],
        cwd=ANSIBLE,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    assert DEPRECATION not in done.stdout + done.stderr, done.stderr
    return {host: counts for host, *counts in RECAP.findall(done.stdout)}


def changed(recap: Recap) -> Recap:
    """Only the hosts on which anything changed, or failed."""
    return {host: counts for host, counts in recap.items() if [*counts] != ["0", "0", "0"]}


def inventory_of(plan: Plan, **arguments: Any) -> dict[str, Any]:
    """What the stack's output would be, entered with the running cluster's key."""
    made = build_inventory(plan, read_manifest(), **arguments)
    made["all"]["vars"]["ansible_user"] = "millrace"
    return entered(plan, made)


def written(inventory: dict[str, Any], folder: Path) -> str:
    """A program that prints it, as Ansible wants it, as Pulumi's outputs are: sorted, 5.0 as 5."""
    told = json.loads(json.dumps(inventory), parse_float=_number)
    (folder / "inventory.json").write_text(json.dumps(told, sort_keys=True))
    program = folder / "inventory"
    program.write_text(f"#!/bin/sh\ncat {folder}/inventory.json\n")
    program.chmod(0o755)
    return str(program)


def run_here(inventory: dict[str, Any], folder: Path, **play: Any) -> None:
    """A play on this machine instead of its hosts, to render what they would get."""
    play |= {"connection": "local", "gather_facts": False}
    play["vars"] = {"ansible_python_interpreter": sys.executable} | play.get("vars", {})
    (folder / "play.yml").write_text(yaml.safe_dump([play]))
    ansible = Path(sys.executable).with_name("ansible-playbook")
    done = subprocess.run(
        [ansible, "-i", written(inventory, folder), folder / "play.yml"],
        env=os.environ | {"ANSIBLE_LOCALHOST_WARNING": "false", "ANSIBLE_BECOME": "false"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def templated(
    role: str,
    template: str,
    plan: Plan,
    folder: Path,
    variables: dict[str, Any] | None = None,
    **known: Any,
) -> str:
    """What a role makes of a template on the second edge host.

    Args:
        variables: of the role's, in place of its own.
        known: told with the plan.
    """
    inventory = build_inventory(plan, {}, artifacts="http://nowhere")
    inventory["all"]["vars"]["millrace"] |= known
    home = ANSIBLE / "roles" / role
    made = folder / template
    task = {"src": str(home / "templates" / f"{template}.j2"), "dest": str(made)}
    run_here(
        inventory,
        folder,
        hosts="edge-2",
        tasks=[{"ansible.builtin.template": task, "vars": variables or {}}],
        vars_files=[str(home / "vars" / "main.yml")],
        vars={"role_path": str(home)},
    )
    return made.read_text()


def _number(text: str) -> float:
    number = float(text)
    return int(number) if number.is_integer() else number


def started_units(plan: Plan) -> dict[str, str]:
    """Host → when each of its units was started."""

    def ask(host: Host) -> str:
        units = " ".join(plan.services[name].unit for name in host.services)
        return run_on(plan, host, f"systemctl show -p Id,ActiveEnterTimestamp {units}").stdout

    return on_all(plan.hosts, ask)
