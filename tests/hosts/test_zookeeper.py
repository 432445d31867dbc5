"""One leader, followers in sync, sessions as short as a fast failover needs."""

import os
import uuid

import pytest

from millrace.cluster import zookeeper
from millrace.common.errors import OperatorError

# The leader counts the others; a follower doesn't have these lines.
LEADERS_LINES = {"zk_synced_followers", "zk_quorum_size"}


@pytest.fixture(scope="module")
def ask(plan):
    """ask(connection, word): the answer to a four-letter word."""
    port = plan.services["zookeeper"].ports["client"]

    def ask(connection, word):
        script = f"exec 3<>/dev/tcp/127.0.0.1/{port}; printf {word} >&3; cat <&3"
        return connection.check_output("bash -c %s", script)

    return ask


@pytest.fixture(scope="module")
def servers(hosts_of):
    return hosts_of("zookeeper")


def monitored(answer: str) -> dict[str, str]:
    return dict(line.split("\t", 1) for line in answer.splitlines() if "\t" in line)


def test_one_server_leads_and_all_others_follow_in_sync(servers, ask):
    states = {name: monitored(ask(server, "mntr")) for name, server in servers.items()}
    modes = [state["zk_server_state"] for state in states.values()]
    assert sorted(modes) == ["follower"] * (len(servers) - 1) + ["leader"]
    leader = next(state for state in states.values() if state["zk_server_state"] == "leader")
    assert leader.keys() >= LEADERS_LINES
    assert float(leader["zk_synced_followers"]) == len(servers) - 1


def test_every_server_has_the_number_of_its_host(plan, servers):
    for name, server in servers.items():
        number = server.file("/var/lib/millrace/zookeeper/myid").content_string.strip()
        assert number == str(plan.host(name).index)


def test_transaction_logs_have_a_directory_of_their_own(servers):
    for server in servers.values():
        assert server.file("/var/lib/millrace/zookeeper/log/version-2").is_directory


def test_words_that_change_or_disclose_something_are_refused(servers, ask):
    for server in servers.values():
        assert "not in the whitelist" in ask(server, "dump")


def test_what_one_server_was_told_every_server_knows(plan, servers):
    port = plan.services["zookeeper"].ports["client"]
    path = f"/millrace-test-{uuid.uuid4().hex}"
    first = next(iter(servers))
    servers[first].check_output(f"zkCli -server {first}:{port} create {path} written")
    try:
        for name, server in servers.items():
            read = f"zkCli -server {name}:{port} get -s {path}"
            assert "written" in server.check_output(read)
    finally:
        servers[first].check_output(f"zkCli -server {first}:{port} delete {path}")


def test_operators_change_the_cluster_one_after_the_other(plan):
    with zookeeper.alone(plan, "site.yml") as locked:
        assert locked
        with (
            pytest.raises(OperatorError, match=rf"site\.yml, by .* \(pid {os.getpid()}\)"),
            zookeeper.alone(plan, "deploy-jobs.yml"),
        ):
            pytest.fail("two at once")
    with zookeeper.alone(plan, "deploy-jobs.yml") as locked:
        assert locked
