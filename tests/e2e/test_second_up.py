"""A second `make up` on a converged cluster: nothing is made, changed or restarted."""

import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

from millrace.paths import ANSIBLE, stack_name
from millrace.plan import load_plan
from millrace.ssh import on_all, run_on

RECAP = re.compile(r"^(\S+)\s+: ok=\d+\s+changed=(\d+)\s+unreachable=(\d+)\s+failed=(\d+)", re.M)

pytestmark = pytest.mark.e2e


def playbook(name: str, *arguments: str) -> dict[str, tuple[str, ...]]:
    """Host → (changed, unreachable, failed) of a run that must succeed."""
    ansible = Path(sys.executable).with_name("ansible-playbook")
    environment = os.environ | {
        "MILLRACE_STACK": stack_name(),
        "PATH": f"{ansible.parent}{os.pathsep}{os.environ['PATH']}",
    }
    done = subprocess.run(
        [ansible, f"playbooks/{name}", *arguments],
        cwd=ANSIBLE,
        env=environment,
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-2000:]
    return {host: counts for host, *counts in RECAP.findall(done.stdout)}


def started_units() -> dict[str, str]:
    """Host → when each of its units was started."""
    plan = load_plan(stack_name())

    def ask(host) -> str:
        units = " ".join(plan.services[name].unit for name in host.services)
        return run_on(plan, host, f"systemctl show -p Id,ActiveEnterTimestamp {units}").stdout

    return on_all(plan.hosts, ask)


def changed(recap: dict[str, tuple[str, ...]]) -> dict[str, tuple[str, ...]]:
    return {host: counts for host, counts in recap.items() if [*counts] != ["0", "0", "0"]}


def test_a_second_preview_is_empty():
    from infra import automation

    changes = automation.preview(automation.stack(stack_name()))
    assert {kind: n for kind, n in changes.items() if kind != "same"} == {}


@pytest.mark.parametrize("name", ["site.yml", "deploy-jobs.yml"])
def test_a_second_run_changes_and_restarts_nothing(name):
    before = started_units()
    recap = playbook(name)
    assert len(recap) > 0
    assert changed(recap) == {}
    assert started_units() == before


def test_check_mode_works_on_a_converged_cluster():
    recap = playbook("site.yml", "--check", "--diff")
    assert len(recap) >= len(load_plan(stack_name()).hosts)
    assert changed(recap) == {}
