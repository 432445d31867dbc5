"""How operators get to hosts and services that they may not call straight."""

import pytest

from millrace.cluster.access import way_in
from millrace.common.errors import OperatorError
from millrace.config import ENTRANCE, Environment, load_environment
from millrace.plan import Plan, load_plan
from millrace.plan.addresses import problems


def test_straight_means_by_their_own_addresses():
    plan = load_plan("local")
    assert {plan.reached_at(host.address) for host in plan.hosts} == {
        host.address for host in plan.hosts
    }
    assert {way_in(plan, host) for host in plan.hosts} == {()}


def test_by_an_edge_host_each_address_has_a_mirror_of_its_own_on_this_machine():
    plan = load_plan("test")
    assert plan.reached_at("198.18.1.21") == "127.18.1.21"
    assert plan.reached_at("127.18.1.21") == "127.18.1.21"  # a driver may ask twice
    assert len({plan.reached_at(host.address) for host in plan.hosts}) == len(plan.hosts)


def test_only_edge_hosts_are_entered_straight_and_all_others_through_one_of_them():
    plan = load_plan("test")
    ways = {host.name: way_in(plan, host) for host in plan.hosts}
    assert {name for name, way in ways.items() if not way} == {"edge-1", "edge-2"}
    [way] = {way for way in ways.values() if way}
    assert "-W %h:%p millrace@198.18.1.71" in way[1]


def test_on_aws_every_host_is_entered_through_session_manager():
    plan = load_plan("dev")
    ways = {way_in(plan, host) for host in plan.hosts}
    assert len(ways) == 1
    assert "ssm-tunnel" in ways.pop()[1]


def changed(name: str, **network: object) -> dict:
    content = load_environment(name).model_dump(mode="json")
    content["network"] |= network
    return content


def test_without_the_services_where_operators_come_in_there_is_no_such_way():
    content = changed("local", way_in="edge")
    content["groups"]["edge"]["services"].remove(ENTRANCE)
    [problem] = problems(Environment.model_validate(content))
    assert problem.startswith("network.way_in: edge")
    assert ENTRANCE in problem


def test_machines_that_would_have_one_mirror_are_refused():
    content = changed("static", way_in="edge")
    content["machines"]["hosts"]["kafka-3"]["address"] = "10.18.0.21"
    [problem] = problems(Environment.model_validate(content))
    assert "machines.hosts.kafka-3" in problem
    assert "kafka-1" in problem
    content["network"]["way_in"] = "straight"
    assert list(problems(Environment.model_validate(content))) == []


def test_what_is_neither_way_is_refused():
    with pytest.raises(ValueError, match=r"network\.way_in"):
        Environment.model_validate(changed("local", way_in="vpn"))


def nowhere() -> Plan:
    """A plan whose cluster nobody is connected to."""
    return load_plan("test").model_copy(update={"cluster": "millrace-nowhere"})


def test_one_whose_connection_ended_is_tried_last(monkeypatch):
    from millrace.cluster import tunnel

    monkeypatch.setattr(tunnel, "_ssh", lambda *_: None)
    assert tunnel._enter(nowhere(), but_last="") == "edge-1"
    assert tunnel._enter(nowhere(), but_last="edge-1") == "edge-2"


def test_an_edge_host_that_refuses_is_told_with_its_reason(monkeypatch):
    from millrace.cluster import tunnel

    monkeypatch.setattr(tunnel, "_ssh", lambda *_: "Permission denied")
    with pytest.raises(OperatorError, match=r"edge-1 .*Permission denied\nedge-2 ") as refused:
        tunnel._enter(nowhere(), but_last="edge-2")
    assert "by SSH to an edge host" in refused.value.hint
