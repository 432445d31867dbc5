"""Goals beside what was measured."""

import pytest
from pydantic import ValidationError

from bench import goals, report
from bench.goals import TWO_LINES, Compared, Goal
from bench.record import read_records
from millrace.drill.report import Machine, Report, Run
from millrace.drill.runbook import Plane
from millrace.drill.tables import load_reasons, load_records

COST = {
    "kind": "service-cost",
    "settings": {"rate": 1000.0, "pages": 200, "jobs": ["archive", "traffic"]},
    "result": {
        "runs": [
            {
                "idle": {"cores": {"executors": 0.01}, "service_cores": 0.3},
                "loaded": {"cores": {"executors": 0.01 + more}, "service_cores": 0.3 + 3 * more},
            }
            for more in (0.02, 0.03, 0.05)
        ]
    },
}
FLOOR = {Plane.PROCESS: 1.5}
DRILL = Report(
    name="driver-killed",
    title="A driver dies",
    faults=[20],
    date="2026-01-02 03:04Z",
    stack="local",
    machine=Machine(cores=2, memory_gib=16),
    rate=2000,
    goal={},
    runs=[Run(gaps={Plane.PROCESS: gap}, floor=FLOOR) for gap in (4.5, 8.0)],
    failures=[],
    audit=None,
)
DRILLS = {DRILL.name: DRILL}
REASONS = {DRILL.name: "It is slow."}


def goal(of: str | dict[str, str], **bound: float) -> Goal:
    return Goal(what="it", of=of, why="because", evidence="as was seen", **bound)


def compared(*asked: Goal) -> list[Compared]:
    return goals.compared(asked, [COST], DRILLS, REASONS)


def shown(*asked: Goal) -> report.Section:
    return report.goals_section(compared(*asked))


def test_a_goal_that_is_reached_gives_no_reason():
    section = shown(goal("executors", at_most=30))
    assert section.rows == [["it", "≤ 30", "**30**"]]
    assert "because" not in str(section.notes)


def test_how_it_is_known_stands_with_the_records():
    known = "\n- *it*: as was seen\n"
    each = compared(goal("executors", at_most=30))
    records = read_records()
    assert known in report.records_page(records, each)
    assert known not in report.first_page(records, each)
    assert "What is known" not in report.records_page(records, compared())


def test_a_reason_has_two_lines():
    assert Goal(what="it", of="idle", why=TWO_LINES * ".")
    with pytest.raises(ValidationError, match="why"):
        Goal(what="it", of="idle", why=TWO_LINES * "." + ".")


def test_a_goal_that_is_missed_says_why():
    section = shown(goal("service", at_most=45), goal("idle", at_least=1))
    assert section.rows == [["it", "≤ 45", "90"], ["it", "≥ 1", "0.3"]]
    assert str(section.notes).count("because") == 2


def test_a_goal_that_is_missed_without_a_reason_is_named_all_the_same():
    one = Goal(what="it", of="service", at_most=45)
    assert "- *it*: " in str(shown(one).notes)


def test_a_drill_counts_by_what_its_worst_run_added_and_has_its_own_reason():
    section = shown(goal({"drill": "driver-killed"}, at_most=5))
    assert section.rows[0][2] == "6.5"
    assert "- *it*: It is slow." in section.notes[-1]


def test_goals_that_are_missed_now_say_why():
    found = goals.compared(goals.read_goals(), read_records(), load_records(), load_reasons())
    missed = [one for one in found if one.figure is not None and not one.goal.met(one.figure)]
    assert [one.goal.what for one in missed if len(one.why) < 10] == []
    assert [one.goal.what for one in found if one not in missed and one.goal.why] == []


def test_nothing_is_claimed_of_what_nobody_measured():
    section = shown(goal("sustained", at_least=1), goal({"drill": "zone-lost"}, at_most=1))
    assert {row[2] for row in section.rows} == {"not recorded"}
    assert "because" not in str(section.notes)


@pytest.mark.parametrize("one", goals.read_goals(), ids=lambda one: one.what)
def test_each_goal_has_a_bound_and_a_figure_or_a_drill(one: Goal):
    assert (one.at_most is None) != (one.at_least is None)
    assert one.of in goals.FIGURES if isinstance(one.of, str) else one.of["drill"]
