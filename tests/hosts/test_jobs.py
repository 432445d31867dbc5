"""The job gateways, and the applications that they keep running."""

import json
from typing import Any

import pytest


@pytest.fixture(scope="module")
def edge(hosts_of):
    return next(iter(hosts_of("job_gateway").values()))


@pytest.fixture(scope="module")
def status(edge) -> dict[str, Any]:
    return json.loads(edge.check_output("job-gateway status"))


@pytest.fixture(scope="module")
def running(plan, edge) -> list[dict[str, Any]]:
    """What YARN runs."""
    port = plan.services["resourcemanager"].ports["http"]
    master = plan.services["resourcemanager"].hosts[0]
    url = f"http://{master}:{port}/ws/v1/cluster/apps?states=ACCEPTED,RUNNING"
    # A standby redirects to the active one.
    return json.loads(edge.check_output("curl -sSfL %s", url))["apps"]["app"]


def test_one_gateway_acts_and_every_other_one_stands_by(plan, status):
    gateways = [status["acting"], *status["standby"]]
    assert sorted(gateways) == plan.services["job_gateway"].hosts


def test_every_application_of_the_plan_runs_once_in_the_deployed_version(plan, status, running):
    expected = {
        f"millrace:{name},version:{status['applications'][name]['version']}"
        for name in plan.applications
    }
    assert sorted(app["applicationTags"] for app in running) == sorted(expected)
    assert {app["state"] for app in running} == {"RUNNING"}


def test_the_gateway_knows_which_run_it_is(plan, status, running):
    seen = {name: status["applications"][name] for name in plan.applications}
    assert {application["phase"] for application in seen.values()} == {"running"}
    assert {application["run"] for application in seen.values()} == {app["id"] for app in running}


def test_every_gateway_could_submit_what_is_deployed(plan, status, hosts_of):
    for connection in hosts_of("job_gateway").values():
        for name in plan.applications:
            version = status["applications"][name]["version"]
            folder = f"/opt/millrace/spark-jobs/{name}-{version}"
            found = connection.check_output("ls %s", folder).split()
            assert found == sorted([f"{name}.json", "millrace_jobs.zip"])


def test_each_job_writes(plan, status, edge):
    for name in plan.applications:
        version = status["applications"][name]["version"]
        edge.check_output("job-gateway wait %s %s --timeout 0", name, version)
