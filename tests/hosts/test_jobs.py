"""The job gateways, and the applications that they keep running."""

import json
import subprocess
import sys
from typing import Any

import pytest

from millrace.cluster.insight_api import InsightApi
from millrace.cluster.zookeeper import drivers
from millrace_shared.driver_record import DriverRecord
from tests.waiting import pause, wait_until

STANDBY_SECONDS = 300


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


def pair(plan, application: str) -> list[DriverRecord]:
    """Its drivers: who leads, then who stands by; waits for a standby that is still starting."""

    def found() -> list[DriverRecord]:
        found = sorted(drivers(plan)[application], key=lambda driver: driver.state)
        assert [driver.state for driver in found] == ["leading", "standby"]
        return found

    return wait_until(found, STANDBY_SECONDS, "one leads and one stands by", every=3)


def test_each_application_has_a_leader_and_a_standby_on_different_hosts(plan, status, running):
    states = {app["id"]: app["state"] for app in running}
    for name in plan.applications:
        leader, standby = pair(plan, name)
        assert leader.host != standby.host
        assert {leader.version, standby.version} == {status["applications"][name]["version"]}
        assert states[leader.run] == "RUNNING"


def test_the_gateway_knows_who_leads(plan, status):
    for name in plan.applications:
        application = status["applications"][name]
        assert application["phase"] == "running"
        assert application["run"] == pair(plan, name)[0].run


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


def test_a_disabled_job_ends_alone_and_goes_on_when_it_is_enabled(plan, edge, status):
    application, jobs = next(iter(plan.applications.items()))
    job, others = jobs[-1], set(jobs[:-1])
    leader = pair(plan, application)[0]
    try:
        typed("jobs", "disable", job, "--yes")
        told = pair(plan, application)[0]
        assert told.jobs == dict.fromkeys(others, "running") | {job: "disabled"}
        before = batches(plan)
        pause(15, "a job that went on would tell of a batch")
        after = batches(plan)
        assert after[job] == before[job]
        # A deployment doesn't wait for it.
        version = status["applications"][application]["version"]
        edge.check_output("job-gateway wait %s %s --timeout 0", application, version)
    finally:
        typed("jobs", "enable", job)
    went_on = pair(plan, application)[0]
    assert went_on.jobs == dict.fromkeys(jobs, "running")
    assert went_on.run == leader.run  # and no driver was restarted


def batches(plan) -> dict[str, int]:
    return {one["job"]: one["batch"] for one in InsightApi(plan).get("/v1/progress")["jobs"]}


def typed(*words: str) -> None:
    subprocess.run([sys.executable, "-m", "millrace.cli", *words], check=True)
