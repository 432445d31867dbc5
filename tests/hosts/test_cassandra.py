"""The ring of Cassandra as it stands on the hosts."""

import re

import pytest

MARK = "/var/lib/millrace/cassandra/member"


@pytest.fixture(scope="module")
def nodes(hosts_of):
    return hosts_of("cassandra")


def test_every_node_sees_the_whole_ring_up_and_normal(nodes):
    for name, node in nodes.items():
        status = node.check_output("nodetool status")
        assert len(re.findall(r"^UN ", status, re.MULTILINE)) == len(nodes), f"{name}:\n{status}"


def test_each_rack_is_a_zone_and_holds_a_whole_replica(plan, nodes):
    status = next(iter(nodes.values())).check_output("nodetool status millrace")
    rows = re.findall(r"^UN +(\S+) .* 16 +([\d.]+)% .* (\S+) *$", status, re.MULTILINE)
    racks = {address: rack for address, _, rack in rows}
    assert racks == {str(h.address): h.zone for h in plan.hosts_of("cassandra")}
    assert {share for _, share, _ in rows} == {"100.0"}


def test_all_nodes_have_one_schema(nodes):
    cluster = next(iter(nodes.values())).check_output("nodetool describecluster")
    versions = cluster.split("Schema versions:")[1].split("Stats")[0]
    assert len(re.findall(r"[0-9a-f-]{36}: \[", versions)) == 1
    assert "UNREACHABLE" not in versions


def test_nodes_repair_themselves(nodes):
    for node in nodes.values():
        full = node.check_output("nodetool getautorepairconfig").partition("repair_type: full")[2]
        assert re.match(r"\s+enabled: true\s+min_repair_interval: 5d", full)


def test_acknowledged_writes_are_on_disk(nodes):
    for node in nodes.values():
        settings = node.file("/etc/millrace/cassandra/cassandra.yaml").content_string
        assert re.search(r'^commitlog_sync: "group"$', settings, re.MULTILINE)


def test_management_is_reachable_from_the_host_alone(plan, nodes):
    port = plan.services["cassandra"].ports["jmx"]
    for node in nodes.values():
        assert node.socket(f"tcp://127.0.0.1:{port}").is_listening
        assert not node.socket(f"tcp://0.0.0.0:{port}").is_listening


def test_a_disk_without_the_rings_mark_keeps_the_node_from_starting(nodes):
    for node in nodes.values():
        mark = node.file(MARK)
        assert mark.user == "root"
        assert mark.mode == 0o444
        assert MARK in node.check_output("systemctl show --property=ExecStartPre cassandra")


def test_resident_memory_is_within_the_plan(plan, nodes):
    planned = plan.services["cassandra"].memory.total
    for node in nodes.values():
        process = node.process.get(user="cassandra", comm="java")
        assert process.rss / 1024 <= planned
