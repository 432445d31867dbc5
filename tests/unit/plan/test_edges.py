"""Who may call which port: what the plan says of it, in every environment."""

import re
from ipaddress import IPv4Address, IPv4Network

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millrace.common.errors import OperatorError
from millrace.common.paths import ANSIBLE, CONFIGS, REPO
from millrace.config import (
    ENTRANCE,
    OPERATOR,
    OUTSIDE,
    READERS,
    Environment,
    component_names,
    load_component,
    load_environment,
)
from millrace.plan import Plan, load_plan
from millrace.plan.addresses import problems
from millrace.plan.edges import SSH, edges
from millrace.plan.reachability import BY_SSH, load_steps, missing

ENVIRONMENTS = sorted(path.stem for path in (CONFIGS / "environments").glob("*.yaml"))
ON_AWS = [name for name in ENVIRONMENTS if load_environment(name).aws]
COMPONENTS = {name: load_component(name) for name in component_names() - {"events"}}
SERVICES = sorted(name for name, component in COMPONENTS.items() if component.memory)
PORTS = sorted({port for c in COMPONENTS.values() for port in c.ports.values()})
STEPS = load_steps()

each_environment = pytest.mark.parametrize("name", ENVIRONMENTS)


@st.composite
def placements(draw) -> Environment:
    """`dev` with its services dealt to groups anew; a service may be left out."""
    groups = [f"g{number}" for number in range(draw(st.integers(1, 7)))]
    where = {s: draw(st.sampled_from([*groups, ""])) for s in SERVICES}
    content = load_environment("dev").model_dump(mode="json")
    kind = content["groups"]["coord"]
    content["groups"] = {
        group: kind | {"services": services}
        for group in groups
        if (services := [s for s in SERVICES if where[s] == group])
    }
    return Environment.model_validate(content) if content["groups"] else load_environment("dev")


def allowed(
    environment: Environment, client: str, server: str, port: int, protocol: str = "tcp"
) -> bool:
    """An oracle of its own, port by port: is there a service that has that client?"""
    by_edge = environment.network.way_in == "edge"
    at_client = {client} if client in OUTSIDE else set(environment.services(client))
    if port == SSH:
        entrance = not by_edge or ENTRANCE in environment.services(server)
        goes_on = not environment.aws and ENTRANCE in at_client and not entrance
        return protocol == "tcp" and (goes_on or (client == OPERATOR and entrance))
    if by_edge and ENTRANCE in at_client:
        at_client.add(OPERATOR)
    elif by_edge:
        at_client.discard(OPERATOR)
    for service in environment.services(server):
        component = COMPONENTS[service]
        for name, clients in component.clients.items():
            if protocol == "udp" and name not in component.udp:
                continue
            single = component.ports.get(name)
            within = component.port_ranges.get(name)
            hit = port == single or (within and within.first <= port <= within.last)
            if hit and at_client & set(clients):
                return True
    return False


def check_edges(environment: Environment, any_port: int) -> None:
    made = edges(environment, COMPONENTS)
    assert {edge.client for edge in made} <= {*environment.groups, *OUTSIDE}
    assert {edge.server for edge in made} <= environment.groups.keys()
    for client in (*environment.groups, *OUTSIDE):
        for server in environment.groups:
            rules = [e for e in made if (e.client, e.server) == (client, server)]
            for port in (*PORTS, SSH, 7399, 7400, 7519, 7520, 40000, any_port):
                for protocol in ("tcp", "udp"):
                    fits = [e for e in rules if e.protocol == protocol]
                    passes = any(rule.first <= port <= rule.last for rule in fits)
                    call = (client, server, port, protocol)
                    assert passes == allowed(environment, *call), call


@settings(max_examples=8)
@given(placements(), st.integers(1, 65535))
def test_the_edges_allow_what_the_components_say_and_nothing_else(environment, any_port):
    check_edges(environment, any_port)


@each_environment
def test_so_they_do_in_each_environment(name):
    check_edges(load_environment(name), 1)


@each_environment
def test_edges_have_names_of_their_own(name):
    made = [edge.name for edge in load_plan(name).edges]
    assert len(set(made)) == len(made)


# --- from outside ---------------------------------------------------------------------------------


@each_environment
def test_only_the_api_is_for_readers_and_only_the_operator_comes_in_by_ssh(name):
    made = load_plan(name).edges
    assert [(e.server, e.first, e.last) for e in made if e.client == READERS] == [
        ("edge", 8443, 8443)
    ]
    assert {e.client for e in made if e.first <= SSH <= e.last} & {*OUTSIDE} == {OPERATOR}


@pytest.mark.parametrize("name", [*ON_AWS, "test"])
def test_where_operators_come_by_an_edge_host_they_get_nowhere_else(name):
    made = load_plan(name).edges
    assert [(e.server, e.purpose) for e in made if e.client == OPERATOR] == [("edge", "ssh")]
    onwards = {e.server for e in made if e.client == "edge" and e.first == SSH}
    assert onwards == (set() if name in ON_AWS else {e.server for e in made} - {"edge"})


@pytest.mark.parametrize("name", ON_AWS)
def test_on_aws_nobody_comes_from_outside_but_through_the_load_balancer(name):
    plan = load_plan(name)
    found = {client: plan.sources(client) for client in OUTSIDE}
    balancers = [subnet.cidr for subnet in plan.aws.subnets if subnet.public]
    assert found == {
        "operator": [],
        "producers": balancers,
        "readers": balancers,
        "this_machine": [],
    }


@pytest.mark.parametrize("name", ["local", "test"])
def test_in_local_the_operator_is_this_machine_and_no_container(name):
    plan = load_plan(name)
    [operator] = map(IPv4Network, plan.sources(OPERATOR))
    assert list(operator) == [IPv4Address(plan.network.gateway)]


def without_operator(name: str) -> Environment:
    content = load_environment(name).model_dump(mode="json")
    content["network"]["outside"]["operator"] = []
    return Environment.model_validate(content)


@pytest.mark.parametrize("name", ["local", "static"])
def test_an_environment_that_would_lock_the_operator_out_is_refused(name):
    [problem] = problems(without_operator(name))
    assert problem.startswith("network.outside.operator: ")
    assert "let nobody in" in problem


def test_a_cidr_that_is_none_is_refused():
    content = load_environment("local").model_dump(mode="json")
    content["network"]["outside"]["producers"] = ["10.0.0.1/33"]
    with pytest.raises(ValueError, match=r"network.outside.producers"):
        Environment.model_validate(content)


# --- what is needed is allowed --------------------------------------------------------------------


@each_environment
@pytest.mark.parametrize("step", STEPS, ids=lambda step: step.step)
def test_what_a_step_calls_is_allowed_everywhere(name, step):
    assert missing(load_plan(name), step) == []


def test_the_operator_may_call_what_a_step_needs_and_nothing_else():
    needed = {target for step in STEPS if step.client == OPERATOR for target in step.to} - {BY_SSH}
    may = {
        f"{name}.{port}"
        for name, component in COMPONENTS.items()
        for port, clients in component.clients.items()
        if OPERATOR in clients
    }
    assert may == needed


# Asked by SSH, on the host that listens.
ASKED_THERE = {"prometheus_server.http"}


def test_the_steps_name_every_port_that_the_toolkit_calls():
    """Where the toolkit asks the plan for addresses of hosts, and where for a port."""
    asked = re.compile(
        r"(?:addresses|reachable|on_host)\([^\"']*[\"'](\w+)[\"'], [\"'](\w+)[\"']\)"
    )
    number = re.compile(r'services\["(\w+)"\]\.ports\["(\w+)"\]')
    found = {
        f"{service}.{port}"
        for path in (REPO / "millrace" / "cluster").glob("*.py")
        for pattern in (asked, number)
        for service, port in pattern.findall(path.read_text())
    }
    named = {target for step in STEPS if step.client == OPERATOR for target in step.to}
    assert len(found) >= 7
    assert found - ASKED_THERE <= named


def test_a_step_without_its_edge_is_noticed():
    plan, step = load_plan("local"), next(s for s in STEPS if s.step == "millrace audit, why")
    assert missing(plan, step) == []
    fewer = [e for e in plan.edges if not (e.client == OPERATOR and "namenode.http" in e.purpose)]
    assert missing(plan.model_copy(update={"edges": fewer}), step) == ["namenode.http"]


# Roles that configure several services, by those that use what they say; and where the plan's
# endpoints are listened on.
SHARED = {
    "kafka_config": ["kafka_broker", "kafka_controller"],
    "hadoop_config": ["zkfc", "resourcemanager"],
}
ENDPOINTS = {
    "zookeeper": ("zookeeper", "client"),
    "kafka": ("kafka_broker", "client"),
    "kafka_controllers": ("kafka_controller", "controller"),
    "cassandra": ("cassandra", "native"),
    "sentinels": ("redis_sentinel", "client"),
    "resourcemanagers": ("resourcemanager", "http"),
    "namenodes": ("namenode", "http"),
    "insights": ("edge_proxy", "insights"),
    "intake": ("edge_proxy", "intake"),
}


def named_by_roles() -> set[tuple[str, str, str]]:
    """Client, service, port: what a service's role says of another service's ports."""
    found = set()
    for role in (ANSIBLE / "roles").iterdir():
        text = "".join(p.read_text() for p in role.rglob("*") if p.suffix in (".yml", ".j2"))
        named = {ENDPOINTS[name] for name in re.findall(r"millrace\.endpoints\.(\w+)", text)}
        named |= set(re.findall(r"millrace\.services\.(\w+)\.ports\.(\w+)", text))
        clients = SHARED.get(role.name, [role.name] if role.name in SERVICES else [])
        found |= {(client, *port) for client in clients for port in named}
    return found


# zkfc's and journalnode's own ports stand in a file that all of Hadoop's daemons read. A proxy
# hands on to the programs of its own host.
NOT_CALLED = {
    ("resourcemanager", "zkfc", "rpc"),
    ("edge_proxy", "insight_api", "http"),
    ("edge_proxy", "collector", "http"),
}


def test_what_a_services_configuration_names_it_may_call():
    named = named_by_roles()
    assert len(named) > 12
    assert ("insight_api", "cassandra", "native") in named
    refused = {
        (client, service, port)
        for client, service, port in named - NOT_CALLED
        if client not in COMPONENTS[service].clients[port]
    }
    assert refused == set()


def test_drivers_may_call_what_their_configuration_names():
    text = (REPO / "spark-jobs/millrace_jobs/config.py").read_text()
    named = {ENDPOINTS[name] for name in re.findall(r"endpoints\.(\w+)", text)}
    assert len(named) == 4
    for service, port in {*named, ("redis", "client"), ("namenode", "rpc"), ("datanode", "data")}:
        assert "nodemanager" in COMPONENTS[service].clients[port], service


@each_environment
def test_what_spark_listens_on_is_in_its_containers_range(name):
    plan: Plan = load_plan(name)
    containers = plan.services["nodemanager"].port_ranges["containers"]
    spark = plan.spark.settings
    tries = spark.defaults.port_retries + 1
    starts = [spark.defaults.driver_port, spark.defaults.blocks_port, spark.common.web_port]
    used = [port for start in starts for port in range(start, start + tries)]
    assert used == list(range(containers.first, containers.last + 1))


def test_an_unknown_client_is_refused(tmp_path):
    (tmp_path / "components").mkdir()
    (tmp_path / "components" / "one.yaml").write_text(
        "summary: One\nports: {http: 80}\nclients: {http: [everybody]}\n"
    )
    with pytest.raises(OperatorError, match="no component everybody"):
        load_component("one", tmp_path)
