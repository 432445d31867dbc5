"""YARN: one active ResourceManager and one that would take over, every NodeManager in its rack."""

import json

import pytest


@pytest.fixture(scope="session")
def rest(plan, hosts_of):
    """rest(path): an answer of the active ResourceManager, or of the host that is named."""
    hosts = hosts_of("resourcemanager")
    port = plan.services["resourcemanager"].ports["http"]

    def ask(path: str, host: str = next(iter(hosts))) -> dict:
        url = f"http://{host}:{port}/ws/v1/cluster/{path}"
        # A standby redirects to the active one, but tells its own state itself.
        return json.loads(hosts[host].check_output("curl -sSfL %s", url))

    return ask


@pytest.mark.parametrize("service", ["resourcemanager", "nodemanager"])
def test_every_host_of_a_service_does_its_part(hosts_of, service):
    connections = hosts_of(service)
    for connection in connections.values():
        connection.check_output(f"service-gate well {service}")


def test_one_resourcemanager_is_active_and_applications_outlive_it(hosts_of, rest):
    infos = [rest("info", host)["clusterInfo"] for host in hosts_of("resourcemanager")]
    assert sorted(info["haState"] for info in infos) == ["ACTIVE", "STANDBY"]
    assert all(info["rmStateStoreName"].endswith(".ZKRMStateStore") for info in infos)


def test_each_resourcemanager_is_watched_by_its_own_user(plan, hosts_of):
    user = plan.services["resourcemanager"].user
    for name, connection in hosts_of("resourcemanager").items():
        watch = connection.service("resourcemanager-watch")
        assert (watch.is_running, watch.is_enabled) == (True, True), name
        shown = connection.check_output("systemctl show -p User --value resourcemanager-watch")
        assert shown == user, name


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


@pytest.fixture(scope="session")
def queues(rest):
    """Name → what YARN says of the queue."""
    told = rest("scheduler")["scheduler"]["schedulerInfo"]["queues"]["queue"]
    return {queue["queueName"]: queue for queue in told}


@pytest.fixture(scope="session")
def scheduler(plan):
    """What the configuration says of the queues."""
    told = plan.services["resourcemanager"].settings["capacity-scheduler.xml"]
    return {key.removeprefix("yarn.scheduler.capacity."): value for key, value in told.items()}


def test_queues_have_the_shares_of_the_configuration(queues, scheduler):
    assert {name: (queue["capacity"], queue["maxCapacity"]) for name, queue in queues.items()} == {
        name: (
            scheduler[f"root.{name}.capacity"],
            scheduler[f"root.{name}.maximum-capacity"],
        )
        for name in scheduler["root.queues"].split(",")
    }


def test_drivers_may_take_most_of_the_queue(queues, scheduler):
    [whole] = queues["stream"]["capacities"]["queueCapacitiesByPartition"]
    percent = scheduler["maximum-am-resource-percent"]
    assert whole["maxAMLimitPercentage"] == pytest.approx(percent * 100)


def test_drivers_run_in_the_queue_of_streams_and_all_may_see_since_when(plan, rest):
    """The gateway and `millrace status` ask without a name."""
    running = (rest("apps?states=RUNNING")["apps"] or {}).get("app", [])
    ours = [app for app in running if app["name"] in plan.applications]
    assert {app["queue"] for app in ours} == {"root.stream"}
    assert all(app["startedTime"] and app["runningContainers"] for app in ours)


@pytest.mark.parametrize(
    ("user", "queue", "may"),
    [
        ("millrace", "stream", True),
        ("stranger", "stream", False),
        ("stranger", "adhoc", True),
        ("millrace", "default", False),
    ],
)
def test_a_queue_takes_what_its_list_says(plan, hosts_of, user, queue, may):
    master, connection = next(iter(hosts_of("resourcemanager").items()))
    query = f"user={user}&queue-acl-type=SUBMIT_APPLICATIONS&user.name=root"
    port = plan.services["resourcemanager"].ports["http"]
    url = f"http://{master}:{port}/ws/v1/cluster/queues/{queue}/access?{query}"
    # Hadoop 3.5 fails to say it in JSON.
    told = connection.check_output("curl -sSfL -H 'Accept: application/xml' %s", url)
    assert f"<allowed>{str(may).lower()}</allowed>" in told


def test_containers_survive_their_nodemanagers_restart(hosts_of):
    """A restart leaves the daemon's children alone (and its recovery then finds them)."""
    for connection in hosts_of("nodemanager").values():
        shown = connection.check_output("systemctl show -p KillMode,PrivateTmp nodemanager")
        assert set(shown.splitlines()) == {"KillMode=process", "PrivateTmp=no"}


def test_operators_have_yarns_commands(hosts_of):
    connection = next(iter(hosts_of("job_gateway").values()))
    states = connection.check_output("yarn rmadmin -getAllServiceState")
    assert sorted(line.split()[1] for line in states.splitlines()) == ["active", "standby"]
