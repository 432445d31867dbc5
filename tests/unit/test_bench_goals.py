"""Goals beside what was measured."""

import pytest

from bench import goals, report
from bench.goals import Goal

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
DRILLS = {"driver-killed": {"runs": [{"gaps": {"process": 4.5}}, {"gaps": {"process": 6.5}}]}}


def goal(of: str | dict[str, str], **bound: float) -> Goal:
    return Goal(what="it", of=of, why="because", **bound)


def shown(*asked: Goal) -> report.Section:
    return report.goals_section(goals.compared(asked, [COST], DRILLS))


def test_a_goal_that_is_reached_says_how_apart_from_those_that_are_missed():
    section = shown(goal("executors", at_most=30))
    assert section.rows == [["it", "≤ 30", "**30**"]]
    assert [note for note in section.notes if "because" in note] == [
        "Of those that are reached:\n\n- *it*: because"
    ]


def test_a_goal_that_is_reached_needs_no_reason():
    one = Goal(what="it", of="executors", at_most=30, why="")
    assert len(shown(one).notes) == 1


def test_a_goal_that_is_missed_says_why():
    section = shown(goal("service", at_most=45), goal("idle", at_least=1))
    assert section.rows == [["it", "≤ 45", "90"], ["it", "≥ 1", "0.3"]]
    assert str(section.notes).count("because") == 2


def test_a_goal_that_is_missed_without_a_reason_is_named_all_the_same():
    one = Goal(what="it", of="service", at_most=45, why="")
    assert "- *it*: " in str(shown(one).notes)


def test_a_drill_counts_by_its_worst_run():
    [row] = shown(goal({"drill": "driver-killed"}, at_most=5)).rows
    assert row[2] == "6.5"


def test_nothing_is_claimed_of_what_nobody_measured():
    section = shown(goal("sustained", at_least=1), goal({"drill": "zone-lost"}, at_most=1))
    assert {row[2] for row in section.rows} == {"not recorded"}
    assert "because" not in str(section.notes)


@pytest.mark.parametrize("one", goals.read_goals(), ids=lambda one: one.what)
def test_each_goal_has_a_bound_and_a_figure_or_a_drill(one: Goal):
    assert (one.at_most is None) != (one.at_least is None)
    assert one.of in goals.FIGURES if isinstance(one.of, str) else one.of["drill"]
