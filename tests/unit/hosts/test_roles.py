"""Who has a role, and what is done to hosts: the parts that need no cluster."""

import io
import re
import subprocess
import sys
from types import SimpleNamespace

import pytest
from typer.testing import CliRunner

from millrace.cli import app
from millrace.common.errors import OperatorError
from millrace.common.exits import Exit
from millrace.hosts import commands, power, roles
from millrace.hosts.roles import EXECUTOR
from millrace.plan import load_plan
from millrace.providers import docker_hosts
from millrace.providers.docker_hosts import partition_script
from millrace.status import health
from millrace.status.verdict import DEGRADED, DOWN, UNKNOWN, Component
from millrace_shared.driver_record import DriverRecord

PLAN = load_plan("local")
RUN = "application_1795252414868_0001"


def test_the_controller_of_the_newest_epoch_leads():
    cut_off = {"leaderId": 101, "leaderEpoch": 4}
    elected = {"leaderId": 103, "leaderEpoch": 5}
    assert roles.leader_id([cut_off, None, elected]) == 103
    assert roles.leader_id([None, None]) is None


def test_the_latest_driver_in_a_state_counts():
    frozen = DriverRecord(RUN, "worker-1", "leading", since=1790000000.0)
    promoted = DriverRecord(RUN, "worker-2", "leading", since=1790000030.0)
    standby = DriverRecord(RUN, "worker-3", "standby", since=1790000040.0)
    assert roles.newest([promoted, frozen, standby], "leading") == promoted
    assert roles.newest([frozen], "standby") is None


@pytest.mark.parametrize("epoch", ["", "e03_"])
def test_the_containers_of_an_application_are_those_that_run(epoch):
    def container(name: str, state: str = "RUNNING") -> dict:
        return {"id": f"container_{epoch}{name}", "state": state}

    listed = [
        container("1795252414868_0001_01_000001"),
        container("1795252414868_0001_01_000003"),
        container("1795252414868_0001_01_000002", "COMPLETE"),
        container("1795252414868_0002_01_000002"),
    ]
    assert roles.containers_of(listed, RUN) == [
        f"container_{epoch}1795252414868_0001_01_{number}" for number in ("000001", "000003")
    ]


def test_an_executor_is_known_by_what_it_runs_not_by_its_number(monkeypatch):
    """YARN's first container of an attempt may be lost: then the driver's has the number 2."""
    driver = DriverRecord(RUN, "worker-1", "leading", since=1.0)
    ids = [f"container_1795252414868_0001_02_00000{number}" for number in (2, 3)]
    listed = [{"id": each, "state": "RUNNING"} for each in ids]

    def run_on(plan, host, command):
        assert command.startswith("pgrep -f '^/[^ ]*/java .*container_")
        running = {
            7: f"/usr/bin/java -Dlogs=/logs/{ids[0]} org.apache.spark.ApplicationMaster",
            8: f"/usr/bin/java -Dlogs=/logs/{ids[1]} org.apache.spark.{EXECUTOR} --cores 3",
        }
        pattern = command.split("'")[1]
        pids = [pid for pid, line in running.items() if re.search(pattern, line)]
        return SimpleNamespace(stdout="".join(f"{pid} 5\n" for pid in pids))

    monkeypatch.setattr(roles, "drivers", lambda plan: {"insights": [driver]})
    monkeypatch.setattr("millrace.cluster.yarn.containers", lambda plan, host: listed)
    monkeypatch.setattr(roles, "run_on", run_on)
    assert roles.ROLES["executor"].find(PLAN).pids == (8,)


def test_the_executor_is_the_one_that_computes():
    first, second, third = PLAN.hosts_of("nodemanager")
    found = [(first, "  812   9\n"), (second, " 7 61\n"), (second, ""), (third, "9 60\n")]
    assert roles.busiest(found) == roles.Holder(second, (7,))
    assert roles.busiest([(first, "")]) is None


def test_who_prints_the_holder_its_processes_or_the_others(monkeypatch):
    found = roles.Holder(PLAN.host("worker-2"), (1234, 1240))
    monkeypatch.setitem(roles.ROLES, "driver", roles.Role("nodemanager", lambda plan: found))
    for options, printed in [
        ([], "worker-2\n"),
        (["--pids"], "1234 1240\n"),
        (["--others"], "worker-1\nworker-3\n"),
    ]:
        assert CliRunner().invoke(app, ["who", "driver", *options]).stdout == printed


def test_nobody_and_nonsense_are_said_so(monkeypatch):
    monkeypatch.setitem(roles.ROLES, "driver", roles.Role("nodemanager", lambda plan: None))
    with pytest.raises(OperatorError, match="no host is driver now"):
        roles.holder(PLAN, "driver")
    with pytest.raises(OperatorError, match="there is no role 'king'"):
        roles.holder(PLAN, "king")


def test_a_partition_drops_both_ways_to_all_other_hosts_and_spares_the_operator():
    host = PLAN.host("kafka-2")
    script = partition_script(PLAN, host)
    [others] = re.findall(r"elements = \{ (.*?) \}", script)
    assert set(others.split(", ")) == {other.address for other in PLAN.hosts if other != host}
    assert "ip saddr @others drop" in script
    assert "ip daddr @others drop" in script
    assert subprocess.run(["sh", "-n"], input=script, text=True).returncode == 0


def test_nothing_is_done_when_one_host_is_unknown(monkeypatch):
    monkeypatch.setattr(power, "provider_of", lambda plan: pytest.fail("it acted"))
    done = CliRunner().invoke(app, ["host", "kill", "kafka-1", "kafka-9", "--yes"])
    assert done.exception.message == "local has no host 'kafka-9'"


def test_other_providers_refuse(monkeypatch):
    # Should the refusal be gone, this test must not kill the host of a cluster that runs here.
    monkeypatch.setattr(docker_hosts, "DockerHosts", lambda plan: pytest.fail("it reached Docker"))
    aws = PLAN.model_copy(update={"provider": "aws"})
    with pytest.raises(OperatorError, match="provider 'aws'"):
        power.act(aws, power.Action.KILL, [PLAN.host("kafka-1")])


def test_commands_keep_their_words_and_their_exit_code(monkeypatch):
    seen = []

    def run(command: list[str]) -> subprocess.CompletedProcess:
        seen.extend(command)
        return subprocess.CompletedProcess(command, 3)

    monkeypatch.setattr(subprocess, "run", run)
    result = CliRunner().invoke(app, ["on", "redis-1", "--", "sh", "-c", "echo 'a  b' | wc"])
    assert result.exit_code == 3
    assert seen[-1] == """sudo sh -c 'echo '"'"'a  b'"'"' | wc'"""
    assert seen[-2] == f"millrace@{PLAN.host('redis-1').address}"


@pytest.mark.parametrize(
    ("options", "listed"),
    [
        ([], [host.name for host in PLAN.hosts]),
        (["--service", "kafka_broker"], ["kafka-1", "kafka-2", "kafka-3"]),
        (["--service", "kafka_broker", "--zone", "b"], ["kafka-2"]),
    ],
)
def test_hosts_are_listed_by_service_and_zone(options, listed):
    assert CliRunner().invoke(app, ["hosts", *options]).stdout.split() == listed


def test_hosts_are_listed_in_one_write(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else `millrace hosts | head -n 1` fails now and then, with unbuffered Python."""
    writes: list[str] = []
    pipe = io.StringIO()
    monkeypatch.setattr(pipe, "write", writes.append)
    monkeypatch.setattr(sys, "stdout", pipe)
    commands.hosts_command(service="kafka_broker", zone=None)
    assert writes == ["kafka-1\nkafka-2\nkafka-3\n"]


def test_only_health_can_be_awaited():
    result = CliRunner().invoke(app, ["await", "godot"])
    assert result.exception.message == "can't wait for 'godot'"


def test_waiting_ends_with_health(monkeypatch):
    answers = iter([[Component("Kafka brokers", DEGRADED, "2 of 3")], []])
    monkeypatch.setattr(health, "ailing", lambda plan: next(answers))
    monkeypatch.setattr(commands, "PAUSE_SECONDS", 0)
    assert CliRunner().invoke(app, ["await", "healthy"]).exit_code == 0
    assert next(answers, "none left") == "none left"


@pytest.mark.parametrize(
    ("state", "code"),
    [(DOWN, Exit.UNHEALTHY), (DEGRADED, Exit.UNHEALTHY), (UNKNOWN, Exit.UNREACHABLE)],
)
def test_waiting_ends_in_time_and_says_what_is_missing(monkeypatch, state, code):
    monkeypatch.setattr(health, "ailing", lambda plan: [Component("Redis", state, "0 master")])
    monkeypatch.setattr(commands, "PAUSE_SECONDS", 0)
    result = CliRunner().invoke(app, ["await", "healthy", "--within", "0s"])
    assert result.exception.message == f"not healthy within 0s:\nRedis: {state}, 0 master"
    assert result.exception.exit_code == code
