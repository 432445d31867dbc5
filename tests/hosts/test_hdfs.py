"""HDFS: one active NameNode and one that follows it, three JournalNodes, blocks in every zone."""

import json
import re
import uuid

import pytest

from tests.waiting import PATIENCE_SECONDS, wait_until

SERVICES = ("journalnode", "namenode", "zkfc", "datanode")
AS_JOB_USER = "HADOOP_USER_NAME=millrace"
# A line of `hdfs fsck -files -blocks -racks`:
# 0. BP-1-198.18.0.51-2:blk_3_4 len=1000 Live_repl=3  [/a/198.18.0.61:9866, /b/198.18.0.62:9866]
BLOCK = re.compile(r"^\d+\. \S+:(blk_\S+) .*?\[(/[^\]]+)\]", re.MULTILINE)


@pytest.fixture(scope="session")
def beans(plan, host_named):
    """beans(service, bean): host name → that JMX bean, of every host of the service."""

    def ask(service: str, bean: str) -> dict[str, dict]:
        port = plan.services[service].ports["http"]
        url = "http://{}:{}/jmx?qry=Hadoop:service={}"
        return {
            host.name: json.loads(
                host_named(host.name).check_output(
                    "curl -sSf %s", url.format(host.name, port, bean)
                )
            )["beans"][0]
            for host in plan.hosts_of(service)
        }

    return ask


@pytest.fixture
def hdfs_file(hosts_of):
    """A file that a client host has written."""
    client = next(iter(hosts_of("job_gateway").values()))
    path = f"/millrace/test-{uuid.uuid4().hex}"
    client.check_output(f"head -c 100000 /dev/urandom | {AS_JOB_USER} hdfs dfs -put - {path}")
    yield path
    client.check_output(f"{AS_JOB_USER} hdfs dfs -rm -skipTrash {path}")


@pytest.mark.parametrize("service", SERVICES)
def test_every_host_of_a_service_does_its_part(plan, hosts_of, service):
    connections = hosts_of(service)
    for connection in connections.values():
        connection.check_output(f"service-gate well {service}")


def test_one_namenode_is_active_and_the_other_keeps_up(beans):
    states = {
        name: bean["State"]
        for name, bean in beans("namenode", "NameNode,name=NameNodeStatus").items()
    }
    assert sorted(states.values()) == ["active", "standby"]
    info = beans("namenode", "NameNode,name=NameNodeInfo")
    seen = {
        states[name]: int(json.loads(bean["JournalTransactionInfo"])["LastAppliedOrWrittenTxId"])
        for name, bean in info.items()
    }
    assert (
        seen["active"] - seen["standby"] <= 100
    )  # edits of a second; more means it doesn't follow


def test_all_journalnodes_hold_the_same_journal(beans):
    info = beans("journalnode", "JournalNode,name=JournalNodeInfo")
    journals = [json.loads(bean["JournalsStatus"]) for bean in info.values()]
    assert journals == [{"millrace": {"Formatted": "true"}}] * len(info)


def test_racks_are_the_zones_of_the_plan(plan, beans):
    zones = {host.name: f"/{host.zone}" for host in plan.hosts_of("datanode")}
    for bean in beans("namenode", "NameNode,name=NameNodeInfo").values():
        live = json.loads(bean["LiveNodes"])
        assert {name.split(":")[0]: node["location"] for name, node in live.items()} == zones


def racks_of_blocks(report: str) -> dict[str, tuple[int, int]]:
    """Block → its racks and its replicas, as `hdfs fsck -files -blocks -racks` shows them.

    Of a block whose file is being written it says nothing.
    """
    found = {}
    for block, places in BLOCK.findall(report):
        racks = [place.rpartition("/")[0] for place in places.split(", ")]
        found[block] = len(set(racks)), len(racks)
    return found


def test_every_block_has_its_replicas_in_as_many_zones(plan, hosts_of, hdfs_file):
    """A file closes with two of them, and jobs write all the time: none may stay so."""
    client = next(iter(hosts_of("job_gateway").values()))
    least = plan.replication.hdfs

    def lacking() -> set[str]:
        report = client.check_output("HADOOP_USER_NAME=hdfs hdfs fsck / -files -blocks -racks")
        blocks = racks_of_blocks(report)
        assert hdfs_file in report
        assert blocks
        return {block for block, seen in blocks.items() if min(seen) < least}

    left = lacking()

    def whole() -> bool:
        left.intersection_update(lacking() if left else ())
        return not left

    wait_until(whole, PATIENCE_SECONDS, f"each block has replicas in {least} racks", every=5)


def test_hdfs_places_blocks_as_the_configuration_says(plan, hosts_of):
    key = "dfs.block.replicator.classname"
    placed = plan.services["namenode"].settings["hdfs-site.xml"][key]
    for name, connection in hosts_of("namenode").items():
        port = plan.services["namenode"].ports["http"]
        told = connection.check_output("curl -sSf %s", f"http://{name}:{port}/conf?name={key}")
        assert placed in told, name


def test_another_user_can_not_write_where_jobs_keep_their_data(hosts_of):
    client = next(iter(hosts_of("job_gateway").values()))
    refused = client.run("HADOOP_USER_NAME=stranger hdfs dfs -touch /millrace/intruder")
    assert refused.rc != 0
    assert "Permission denied" in refused.stderr


@pytest.mark.parametrize("service", ["journalnode", "namenode", "datanode", "job_gateway"])
def test_operators_have_hadoops_commands(hosts_of, service):
    connection = next(iter(hosts_of(service).values()))
    assert "active" in connection.check_output("hdfs haadmin -getAllServiceState")
    assert connection.check_output("hadoop fs -ls -C /").splitlines() == [
        "/millrace",
        "/tmp",
        "/user",
    ]
