"""The upkeep: each edge host looks, one of them does it, and a failed one shows."""

import pytest

from millrace.cluster.zookeeper import upkeep
from tests.waiting import pause, wait_until

LOCK_SECONDS = 120  # some sessions of a gateway, with which its lock goes


def test_each_edge_host_looks_once_an_hour(hosts_of):
    for connection in hosts_of("job_gateway").values():
        shown = connection.check_output(
            "systemctl show -p ActiveState,UnitFileState,TimersCalendar upkeep.timer"
        )
        assert "ActiveState=active" in shown
        assert "UnitFileState=enabled" in shown
        assert "OnCalendar=*-*-* *:00:00" in shown


def test_the_unit_has_its_own_memory_and_the_least_share_of_the_cores(plan, hosts_of):
    granted = plan.services["job_gateway"].settings["upkeep"]["memory_mb"] * 2**20
    for connection in hosts_of("job_gateway").values():
        shown = connection.check_output("systemctl show -p Type,User,MemoryMax,Nice upkeep")
        assert set(shown.splitlines()) == {
            "Type=oneshot",
            "User=gateway",
            f"MemoryMax={granted}",
            "Nice=19",
        }


def test_workers_bound_what_a_container_logs_and_clients_agree_where_logs_go(plan, hosts_of):
    yarn = plan.services["nodemanager"].settings["yarn-site.xml"]
    name = "yarn.nodemanager.container-log-monitor.total-size-limit-bytes"
    for connection in hosts_of("nodemanager").values():
        site = connection.file("/etc/millrace/hadoop/yarn-site.xml").content_string
        assert f"<name>{name}</name><value>{yarn[name]}</value>" in "".join(site.split())


@pytest.mark.extended
def test_what_is_due_is_done_by_one_host_and_not_again_by_the_other(plan, hosts_of):
    one, other = hosts_of("job_gateway").values()
    one.check_output("job-gateway upkeep --due")
    due = upkeep(plan)
    one.check_output("systemctl start upkeep")
    done = upkeep(plan)
    assert done["error"] == ""
    assert done["since"] > due["since"]
    assert done["host"] == plan.services["job_gateway"].hosts[0]
    other.check_output("systemctl start upkeep")
    assert upkeep(plan) == done


@pytest.mark.extended
def test_one_that_is_killed_is_done_by_the_other_host(plan, hosts_of):
    one, other = hosts_of("job_gateway").values()
    one.check_output("job-gateway upkeep --due")
    due = upkeep(plan)
    one.check_output("systemctl start --no-block upkeep")
    pause(20, "it is under way")
    one.check_output("systemctl kill --signal=KILL upkeep; systemctl reset-failed upkeep")
    assert upkeep(plan) == due

    def is_done_by_the_other() -> bool:
        other.check_output("systemctl start upkeep")
        return upkeep(plan)["host"] == plan.services["job_gateway"].hosts[1]

    wait_until(is_done_by_the_other, LOCK_SECONDS, "the killed one's lock has gone")
