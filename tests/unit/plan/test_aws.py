"""The plan's part for AWS: pure, so that it can be asked about every topology."""

from collections import Counter
from ipaddress import IPv4Address, IPv4Network

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from pydantic import ValidationError

from millrace.common.errors import OperatorError
from millrace.config import (
    Environment,
    component_names,
    load_component,
    load_environment,
    load_events,
    load_names,
)
from millrace.config.jobs import load_job_settings, with_jobs
from millrace.config.lookup_tables import load_tables
from millrace.config.streams import load_streams
from millrace.plan import Plan, load_plan, make_plan
from millrace.plan.aws import subnets
from millrace.plan.capacity import Load, load_assumptions, size
from tests.unit.plan.changes import changed

ON_AWS = ("dev", "staging", "prod")
COMPONENTS = {name: load_component(name) for name in component_names() - {"events"}}
EVENTS = load_events()
NAMES = load_names()
STREAMS = load_streams()
TABLES = load_tables()
COMPONENTS["spark"] = with_jobs(COMPONENTS["spark"], load_job_settings(STREAMS))
SERVICES = sorted(name for name, component in COMPONENTS.items() if component.memory)


def plan_of(environment: Environment, name: str = "dev") -> Plan:
    return make_plan(name, environment, COMPONENTS, EVENTS, NAMES, STREAMS, TABLES)


# --- subnets and addresses ------------------------------------------------------------------------


@settings(max_examples=40)
@given(st.integers(16, 22), st.integers(0, 255), st.sampled_from(["abc", "abcd"]))
def test_subnets_lie_in_the_vpc_and_not_in_each_other(prefix, second, zones):
    content = load_environment("dev").model_dump(mode="json")
    content["network"]["subnet"] = f"10.{second}.0.0/{prefix}"
    content["zones"] = list(zones)
    content["aws"]["zones"] = {zone: f"us-east-1{zone}" for zone in zones}
    made = list(subnets(Environment.model_validate(content)))
    networks = [IPv4Network(subnet.cidr) for subnet in made]
    assert len(made) == 2 * len(zones)
    assert all(each.subnet_of(IPv4Network(f"10.{second}.0.0/{prefix}")) for each in networks)
    assert not any(a.overlaps(b) for a in networks for b in networks if a is not b)


@pytest.mark.parametrize("name", ON_AWS)
def test_hosts_stand_in_their_zones_private_subnet(name):
    plan = load_plan(name)
    for host in plan.hosts:
        subnet = IPv4Network(plan.aws.subnet(host.zone).cidr)
        offset = int(IPv4Address(host.address)) - int(subnet.network_address)
        # AWS keeps the first four addresses of a subnet, and the last.
        assert 4 <= offset < subnet.num_addresses - 1
    assert len({host.address for host in plan.hosts}) == len(plan.hosts)


def test_a_group_may_have_more_hosts_than_nine_and_no_other_host_moves():
    before, after = load_plan("dev"), plan_of(changed("groups/kafka/hosts", 24))
    assert len(after.hosts_of("kafka_broker")) == 24
    addresses = {host.name: host.address for host in after.hosts}
    assert len(set(addresses.values())) == len(addresses)
    assert {host.name: host.address for host in before.hosts}.items() <= addresses.items()
    with pytest.raises(OperatorError, match=r"groups\.kafka\.hosts: 120 is over 99, the numbers"):
        plan_of(changed("groups/kafka/hosts", 120))


def test_a_placement_group_has_seven_hosts_in_a_zone_and_none_has_to_leave_its_own():
    before, after = load_plan("dev"), plan_of(changed("groups/kafka/hosts", 24))
    assert before.aws.placements.items() <= after.aws.placements.items()
    brokers = after.hosts_of("kafka_broker")
    placed = Counter((after.aws.placements[host.name], host.zone) for host in brokers)
    assert placed == {
        (f"kafka-spread-{number}", zone): hosts
        for number, hosts in ((1, 7), (2, 1))
        for zone in after.zones
    }


def test_no_two_environments_share_addresses():
    names = ("local", "test", *ON_AWS)
    networks = [IPv4Network(load_plan(name).network.subnet) for name in names]
    assert not any(a.overlaps(b) for a in networks for b in networks if a is not b)


# --- disks ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", ON_AWS)
def test_every_data_volume_is_a_disk_with_a_device_of_its_own(name):
    plan = load_plan(name)
    for host in plan.hosts:
        mine = [plan.aws.volumes[volume.name] for volume in host.volumes]
        assert {each.host for each in mine} <= {host.name}
        assert len({each.device for each in mine}) == len(mine)
    assert plan.aws.volumes.keys() == {v.name for host in plan.hosts for v in host.volumes}


# --- environments ---------------------------------------------------------------------------------


def test_prod_is_what_the_capacity_planner_asks_for():
    environment, plan = load_environment("prod"), load_plan("prod")
    topic = plan.topics["events"]
    load = Load(*environment.load.model_dump().values(), topic.retention_days, topic.replication)
    assert load.events_per_second == 100_000
    needed = size(load, load_assumptions())
    assert len(plan.hosts_of("kafka_broker")) >= needed.brokers
    assert plan.topics["events"].partitions >= needed.partitions


def test_staging_has_prods_shape():
    shapes = [
        [(host.name, host.zone, host.services) for host in load_plan(name).hosts]
        for name in ("staging", "prod")
    ]
    assert shapes[0] == shapes[1]


def test_what_is_local_knows_nothing_of_aws():
    content = load_plan("local").model_dump(mode="json")
    assert "aws" not in content
    assert "machines" not in content


@pytest.mark.parametrize(
    ("path", "value", "complaint"),
    [
        ("network/subnet", "10.0.0.0/24", "10.0.0.0/24; a VPC with 8 subnets is /16 to /22"),
        ("network/subnet", "198.18.0.0/16", "isn't private (RFC 1918)"),
        ("aws/zones", {"a": "us-east-1a"}, "aws.zones: no availability zone for b, c"),
        (
            "aws/zones",
            {"a": "us-east-1a", "b": "us-east-1a", "c": "us-east-1c"},
            "two zones in one place are lost together",
        ),
        ("aws/region", "eu-west-1", "aws.zones: us-east-1a isn't in eu-west-1"),
        ("aws/disks/kafka_broker", {"size": 5}, "topics may keep 4 GiB on each broker, 70% of"),
        ("aws/disks/kafak_broker", {"size": 5}, "aws.disks.kafak_broker: no service of that name"),
        ("groups/worker/instance", "t3.small", "1904 MiB of t3.small; its services need 3726 MiB"),
        ("aws/root_disk", {"size": 14}, "14 GiB; on hosts of coord the system takes 10, and 70%"),
        ("aws/root_disk", {"size": 14}, "on hosts of edge the system takes 10, prometheus_"),
        ("load", {"events_per_second": 10**6, "bytes": 240}, "brokers, there"),
        ("load", {"events_per_second": 1000, "bytes": 240}, "keeps 9 GiB (re"),
    ],
)
def test_what_aws_would_refuse_or_disks_could_not_hold(path, value, complaint):
    with pytest.raises(OperatorError) as refused:
        plan_of(changed(path, value))
    assert complaint in refused.value.message
    assert refused.value.message.startswith("configs/environments/dev.yaml: ")


def test_a_service_with_data_needs_a_disk():
    content = load_environment("dev").model_dump(mode="json")
    del content["aws"]["disks"]["zookeeper"]
    with pytest.raises(OperatorError, match="none for zookeeper, which keeps data"):
        plan_of(Environment.model_validate(content))


def test_architectures_are_not_mixed():
    content = load_environment("dev").model_dump(mode="json")
    content["aws"]["instance_types"]["t3.micro"]["architecture"] = "arm64"
    with pytest.raises(OperatorError, match="one image can't start two architectures"):
        plan_of(Environment.model_validate(content))


def test_a_name_that_no_load_balancer_could_bear():
    with pytest.raises(OperatorError, match="names on AWS leave a cluster 27 characters"):
        plan_of(load_environment("dev"), "a-name-that-is-too-long")


@pytest.mark.parametrize(
    ("path", "value", "complaint"),
    [
        ("load", None, "load: its disks on AWS are sized for one"),
        ("aws/disks/redis", {"size": 0}, "greater than or equal to 1"),
        ("aws/disks/redis", {"size": 4, "iops": 4000}, "4000 IOPS need 8 GiB"),
        ("aws/disks/redis", {"size": 100, "throughput": 800}, "800 MiB/s need 3200 IOPS"),
        ("groups/redis/instance", "t9.huge", "groups.redis: needs an instance type of configs/aws"),
        ("groups/redis/memory", 512, "groups.redis: needs an instance type"),
        ("provider", "docker", "aws: belongs to provider aws"),
        ("aws/region", "moon", "should match pattern"),
        ("aws/certificate", "my-certificate", "should match pattern"),
    ],
)
def test_a_bad_key_is_refused(path, value, complaint):
    with pytest.raises(ValidationError) as refused:
        changed(path, value)
    assert complaint in str(refused.value)


# --- components -----------------------------------------------------------------------------------


def test_a_port_without_clients_is_refused():
    content = COMPONENTS["redis"].model_dump(mode="json")
    del content["clients"]["client"]
    with pytest.raises(ValueError, match="each port needs its list"):
        type(COMPONENTS["redis"]).model_validate(content)


def test_an_unknown_client_is_refused(tmp_path):
    (tmp_path / "components").mkdir()
    (tmp_path / "components" / "one.yaml").write_text(
        "summary: One\nports: {http: 80}\nclients: {http: [browsr]}\n"
    )
    with pytest.raises(OperatorError, match="no component browsr"):
        load_component("one", tmp_path)


# --- machines that exist already ------------------------------------------------------------------


def test_static_is_local_on_its_own_hosts():
    local, static = load_plan("local"), load_plan("static")
    assert [(h.name, h.address, h.zone, h.services) for h in static.hosts] == [
        (h.name, h.address, h.zone, h.services) for h in local.hosts
    ]


@pytest.mark.parametrize(
    ("path", "value", "complaint"),
    [
        ("groups/kafka/hosts", 4, "machines.hosts: no machine kafka-4, which groups ask for"),
        ("groups/worker/hosts", 2, "machines.hosts.worker-3: no group asks for it"),
        (
            "machines/hosts/kafka-1",
            {"address": "198.18.0.22", "zone": "a"},
            "machines.hosts.kafka-2: 198.18.0.22 is kafka-1's, too",
        ),
        (
            "machines/hosts/kafka-1",
            {"address": "198.18.0.21", "zone": "z"},
            "machines.hosts.kafka-1: zone z isn't one of zones",
        ),
        (
            "machines/hosts/kafka-2",
            {"address": "198.18.0.22", "zone": "a"},
            "replication.kafka.factor: 3 replicas in 2 zone(s)",
        ),
    ],
)
def test_machines_that_do_not_fit_the_groups(path, value, complaint):
    with pytest.raises(OperatorError) as refused:
        plan_of(changed(path, value, "static"), "static")
    assert complaint in refused.value.message
