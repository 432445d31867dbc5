"""YARN: one active ResourceManager and one that would take over, every NodeManager in its rack."""

import json

import pytest


@pytest.fixture(scope="session")
def rest(plan, hosts_of):
    """rest(path): an answer of the active ResourceManager."""
    host, connection = next(iter(hosts_of("resourcemanager").items()))
    port = plan.services["resourcemanager"].ports["http"]

    def ask(path: str) -> dict:
        url = f"http://{host}:{port}/ws/v1/cluster/{path}"
        # A standby redirects to the active one.
        return json.loads(connection.check_output("curl -sSfL %s", url))

    return ask


@pytest.mark.parametrize("service", ["resourcemanager", "nodemanager"])
def test_every_host_of_a_service_does_its_part(hosts_of, service):
    connections = hosts_of(service)
    for connection in connections.values():
        connection.check_output(f"hadoop-health {service} {len(connections)}")


def test_applications_outlive_a_resourcemanager(rest):
    info = rest("info")["clusterInfo"]
    assert info["haState"] == "ACTIVE"
    assert info["rmStateStoreName"].endswith(".ZKRMStateStore")


def test_workers_lend_what_the_configuration_says_from_the_racks_of_the_plan(plan, rest):
    lent = plan.services["nodemanager"].settings["yarn-site.xml"]
    nodes = rest("nodes?states=RUNNING")["nodes"]["node"]
    assert {node["nodeHostName"]: node["rack"] for node in nodes} == {
        host.name: f"/{host.zone}" for host in plan.hosts_of("nodemanager")
    }
    totals = {(n["totalResource"]["memory"], n["totalResource"]["vCores"]) for n in nodes}
    assert totals == {
        (lent["yarn.nodemanager.resource.memory-mb"], lent["yarn.nodemanager.resource.cpu-vcores"])
    }


def test_drivers_may_take_most_of_the_queue(plan, rest):
    percent = plan.services["resourcemanager"].settings["capacity-scheduler.xml"][
        "yarn.scheduler.capacity.maximum-am-resource-percent"
    ]
    queues = rest("scheduler")["scheduler"]["schedulerInfo"]["queues"]["queue"]
    assert [queue["queueName"] for queue in queues] == ["default"]
    limit = queues[0]["capacities"]["queueCapacitiesByPartition"][0]["maxAMLimitPercentage"]
    assert limit == pytest.approx(percent * 100)


def test_containers_survive_their_nodemanagers_restart(hosts_of):
    """A restart leaves the daemon's children alone (and its recovery then finds them)."""
    for connection in hosts_of("nodemanager").values():
        shown = connection.check_output("systemctl show -p KillMode,PrivateTmp nodemanager")
        assert set(shown.splitlines()) == {"KillMode=process", "PrivateTmp=no"}


def test_operators_have_yarns_commands(hosts_of):
    connection = next(iter(hosts_of("job_gateway").values()))
    states = connection.check_output("yarn rmadmin -getAllServiceState")
    assert sorted(line.split()[1] for line in states.splitlines()) == ["active", "standby"]
