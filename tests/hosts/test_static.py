"""The running hosts as machines that somebody else made: the stack `static`, pointed at them."""

from pathlib import Path

import pytest

from millrace.common.paths import stack_name
from millrace.config import Environment, load_environment
from millrace.inventory import artifacts_url
from millrace.plan import Plan
from millrace.plan.make import plan_environment
from tests.playbooks import changed, inventory_of, run_playbook, started_units, written

# To a machine, the hosts file is its own, and the lists of packages are an hour young.
BARE = """
if mountpoint --quiet /etc/hosts; then
    cp /etc/hosts /run/hosts && umount /etc/hosts && cp /run/hosts /etc/hosts
fi
touch /var/lib/apt/lists
"""


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
    return plan_environment(plan.environment, Environment.model_validate(content))


def test_hosts_of_another_cluster_are_refused(plan: Plan, tmp_path: Path) -> None:
    other = as_machines(plan).model_copy(update={"cluster": "millrace-other"})
    with pytest.raises(AssertionError, match=f"the cluster {plan.cluster}, not"):
        run_playbook("preflight.yml", "-i", written(inventory_of(other), tmp_path))


@pytest.mark.extended
def test_they_are_entered_and_checked_like_any_machine(plan: Plan, tmp_path: Path) -> None:
    inventory = inventory_of(as_machines(plan))
    run_playbook("preflight.yml", "-i", written(inventory, tmp_path))


@pytest.mark.extended
def test_they_become_hosts_of_the_plan_and_nothing_is_restarted(
    plan: Plan, host_named, tmp_path: Path
) -> None:
    for host in plan.hosts:
        host_named(host.name).check_output(BARE)
    inventory = written(inventory_of(as_machines(plan)), tmp_path)
    before = started_units(plan)
    run_playbook("site.yml", "-i", inventory)
    assert started_units(plan) == before
    assert changed(run_playbook("site.yml", "-i", inventory)) == {}
    assert started_units(plan) == before
