"""The estimate of availability, on clusters and faults that are made up, and its inputs."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.common.errors import OperatorError
from millrace.drill.availability import (
    Away,
    Faults,
    Unit,
    availability_tables,
    load_faults,
    percentile,
    simulate,
    too_few,
)
from millrace.drill.runbook import Plane, load_runbooks
from millrace.drill.tables import load_records
from millrace.plan import load_plan
from tests.unit.drill.test_report import report, run

PROD = load_plan("prod")
KNOWN = {"why": "because it is so", "source": "made up for this"}
RECORDS = {"host-lost": report(run(process=10)), "mild": report(run(process=4, read=1))}


def faults(*each: dict[str, Any], rate: float = 12, hours: float = 1, **changes: Any) -> Faults:
    """Faults that come `rate` times a year, of units that are away for some hours."""
    content = {
        "summary": "",
        "goal": {"value": 0.99999} | KNOWN,
        "environment": "prod",
        "years": 200,
        "seed": 1,
        "rates": {"often": {"low": rate, "high": rate} | KNOWN},
        "repairs": {"host": {"low": hours, "high": hours} | KNOWN},
        "faults": list(each),
        "quorums": [],
    }
    return Faults.model_validate(content | changes)


def fault(**changes: Any) -> dict[str, Any]:
    base = {
        "what": "A fault",
        "rate": "often",
        "each": "cluster",
        "costs": [{"drill": "host-lost"}],
    }
    return base | changes


def mean(found: Faults, plane: Plane = Plane.PROCESS) -> float:
    years = simulate(found, PROD, RECORDS)
    return sum(year.total(plane) for year in years) / len(years)


def test_a_year_has_each_fault_as_often_as_it_comes_and_at_its_drills_cost() -> None:
    assert mean(faults(fault())) == pytest.approx(12 * 10, rel=0.05)


def test_each_host_of_a_group_fails_by_itself() -> None:
    assert mean(faults(fault(each=None, group="kafka"))) == pytest.approx(9 * 12 * 10, rel=0.05)


def test_what_concerns_the_leader_costs_once_in_so_many_times_as_there_are_hosts() -> None:
    costs = [{"drill": "host-lost", "of": "leader"}]
    led = faults(fault(each=None, group="kafka", costs=costs))
    assert mean(led) == pytest.approx(12 * 10, rel=0.05)


def test_of_several_drills_that_a_fault_is_like_the_worst_counts_on_each_plane() -> None:
    both = faults(fault(costs=[{"drill": "host-lost"}, {"drill": "mild"}]))
    assert mean(both) == pytest.approx(12 * 10, rel=0.05)
    assert mean(both, Plane.READ) == pytest.approx(12 * 1, rel=0.05)


def test_the_same_inputs_make_the_same_document() -> None:
    made = faults(fault())
    assert availability_tables(made, PROD, RECORDS) == availability_tables(made, PROD, RECORDS)


def away(since: float, until: float, zone: str, group: str = "kafka") -> Away:
    return Away(since, until, Unit(zone, (group,), 1.0))


def test_a_quorum_is_lost_while_hosts_of_two_zones_are_away() -> None:
    others = [away(0, 9, "c", "redis"), away(6, 8, "a"), away(6.5, 7, "a")]
    assert too_few([away(1, 4, "a"), away(2, 6, "b"), *others], "kafka", 1) == 2
    assert too_few([away(1, 4, "a"), away(2, 6, "a"), *others], "kafka", 1) == 0


@given(st.lists(st.tuples(st.integers(0, 20), st.integers(1, 9), st.sampled_from("abc"))))
def test_a_quorum_is_lost_as_long_as_looking_each_hour_finds(outages) -> None:
    each = [away(since, since + length, zone) for since, length, zone in outages]
    for zones in (1, 2):
        hours = [
            len({one.unit.zone for one in each if one.since <= hour < one.until}) > zones
            for hour in range(30)
        ]
        assert too_few(each, "kafka", zones) == sum(hours)


def test_a_second_fault_during_a_repair_stops_the_planes_of_its_quorum() -> None:
    quorum = {"group": "kafka", "zones": 1, "planes": ["read"], "why": "two of three are needed"}
    lost = fault(each=None, group="kafka", repair="host")
    # Nine brokers, each away for a hundredth of the time; three in each of three zones.
    away_share = 12 * 7.305 / 8766
    zone_share = 1 - (1 - away_share) ** 3
    both = 3 * zone_share**2 * (1 - zone_share) + zone_share**3
    found = mean(faults(lost, hours=7.305, quorums=[quorum]), Plane.READ)
    assert found / (3600 * 8766) == pytest.approx(both, rel=0.1)


def test_what_is_planned_does_not_begin_while_a_host_is_away() -> None:
    quorum = {"group": "coord", "zones": 1, "planes": ["read"], "why": "two of three are needed"}
    patched = fault(each=None, group="coord", repair="host", planned=True)
    assert mean(faults(patched, hours=200, quorums=[quorum]), Plane.READ) == 0


@pytest.mark.parametrize(
    "wrong",
    [
        fault(rate="never"),
        fault(repair="disk"),
        fault(group="kafka"),
        fault(each=None),
    ],
)
def test_a_fault_that_names_nothing_known_is_refused(wrong) -> None:
    with pytest.raises(ValueError, match=r"no such rate or repair|either group or each"):
        faults(wrong)


def test_a_drill_that_is_not_recorded_is_named() -> None:
    with pytest.raises(OperatorError, match=r"no record of unheard-of"):
        simulate(faults(fault(costs=[{"drill": "unheard-of"}])), PROD, RECORDS)


def test_a_group_that_the_environment_does_not_have_is_named() -> None:
    with pytest.raises(OperatorError, match=r"prod has no group flink"):
        simulate(faults(fault(each=None, group="flink")), PROD, RECORDS)


def test_what_the_document_is_made_of_is_recorded_and_covers_every_group_of_hosts() -> None:
    inputs = load_faults()
    named = {cost.drill for one in inputs.faults for cost in one.costs}
    assert named <= {runbook.name for runbook in load_runbooks()} & load_records().keys()
    groups = {host.group for host in load_plan(inputs.environment).hosts}
    assert {one.group for one in inputs.faults} - {None} == groups
    assert {quorum.group for quorum in inputs.quorums} <= groups


def test_a_percentile_is_one_of_the_values() -> None:
    assert [percentile([1, 2, 3, 4], share) for share in (0, 0.05, 0.5, 0.95)] == [1, 1, 2, 4]
