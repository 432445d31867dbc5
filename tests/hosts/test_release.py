"""A worker is released, as before its machine is replaced, and comes back."""

import json

import pytest

from millrace.hosts.roles import holder
from tests.playbooks import run_playbook
from tests.waiting import wait_until

# Whatever has a file below a folder open, or is at home there: its volume couldn't be let go of.
HELD = "find /proc/[0-9]*/cwd /proc/[0-9]*/root /proc/[0-9]*/fd -lname '{}/*' 2> /dev/null || true"
TAKEN_OVER_SECONDS = 120


@pytest.mark.extended
def test_a_worker_of_the_leading_driver_lets_go_of_its_disks_and_comes_back(
    plan, host_named, hosts_of
):
    worker = holder(plan, "driver").host.name
    run_playbook("release-host.yml", "--extra-vars", f"host={worker}")
    for service in plan.host(worker).services:
        folder = f"/var/lib/millrace/{plan.services[service].unit}"
        assert host_named(worker).check_output(HELD.format(folder)) == ""
    asked, master = next(iter(hosts_of("resourcemanager").items()))
    port = plan.services["resourcemanager"].ports["http"]
    url = f"http://{asked}:{port}/ws/v1/cluster/nodes?states=DECOMMISSIONED"
    nodes = json.loads(master.check_output("curl -sSfL %s", url))["nodes"]["node"]
    assert [node["nodeHostName"] for node in nodes] == [worker]
    wait_until(
        lambda: holder(plan, "driver").host.name != worker, TAKEN_OVER_SECONDS, "another one leads"
    )

    run_playbook("site.yml", "--limit", worker)
    run_playbook("verify.yml")
    assert host_named(worker).check_output("service-gate well nodemanager --wait") == ""
