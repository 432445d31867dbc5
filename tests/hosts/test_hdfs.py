"""HDFS: one active NameNode and one that follows it, three JournalNodes, blocks in every zone."""

import json
import uuid

import pytest

SERVICES = ("journalnode", "namenode", "zkfc", "datanode")
AS_JOB_USER = "HADOOP_USER_NAME=millrace"


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
        connection.check_output(f"service-gate after {service}")


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
    zones = {f"/{host.zone}": host.name for host in plan.hosts_of("datanode")}
    for bean in beans("namenode", "NameNode,name=NameNodeInfo").values():
        live = json.loads(bean["LiveNodes"])
        racks = {node["location"]: name.split(":")[0] for name, node in live.items()}
        assert racks == zones


def test_a_file_has_a_replica_in_every_zone(plan, hosts_of, hdfs_file):
    client = next(iter(hosts_of("job_gateway").values()))
    report = client.check_output(f"{AS_JOB_USER} hdfs fsck {hdfs_file} -files -blocks -racks")
    assert f"Live_repl={plan.replication.hdfs}" in report
    assert f"Number of racks:\t\t{len(plan.zones)}" in report
    assert "is HEALTHY" in report


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
