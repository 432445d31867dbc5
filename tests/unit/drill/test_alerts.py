"""Which alerts a fault fired, out of what two Prometheis have of it, and whether it should have."""

from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.config.alerts import Alert, load_alerts
from millrace.drill.alerts import (
    FIRED_ALREADY,
    NOT_HELD,
    SILENT,
    Expected,
    Firing,
    alert_outcomes,
    awaited,
    expected,
    firings,
    spans,
)
from millrace.drill.report import AlertOutcomes, Fired
from millrace.drill.runbook import load_runbook, load_runbooks
from millrace.drill.timeline import Episode, Mark, Span
from millrace.plan import load_plan

RULES = [alert for file in load_alerts().values() for alert in file.alerts]
OWN = Expected("NodeDown", 55, 40, silent=False, also=("AllDown",), evaluation_seconds=5)
FLOOR = replace(OWN, alert=None, also=())
# Injected from 100 to 102, healed from 162 on, all healthy at 200.
EPISODE = Episode(
    Span(100, 200), [Mark("inject", 100, 102), Mark("hold", 102, 162), Mark("recover", 162, 165)]
)

moments = st.lists(st.integers(0, 300), min_size=1, unique=True).map(sorted)


def series(alert: str, times: list[float], severity: str = "warning", **labels: str) -> Any:
    names = {"alertname": alert, "severity": severity, "alertstate": "firing"} | labels
    return {"metric": names, "values": [[time, "1"] for time in times]}


def every_five(since: int, until: int) -> list[float]:
    return [float(time) for time in range(since, until, 5)]


def own(since: float, until: float | None, severity: str = "warning") -> Firing:
    return Firing("NodeDown", severity, since, until)


def judged(*found: Firing, wanted: Expected = OWN, until: float = 300) -> AlertOutcomes:
    return alert_outcomes(wanted, found, EPISODE, until)


# --- from samples to spans ----------------------------------------------------------------------


@given(moments, st.integers(1, 40))
def test_spans_hold_all_moments_and_stand_further_apart_than_the_limit(times, longest):
    found = list(spans(times, longest))
    inside = [[t for t in times if span.since <= t <= span.until] for span in found]
    assert [t for part in inside for t in part] == times
    assert all(b.since - a.until > longest for a, b in pairwise(found))
    assert all(b - a <= longest for part in inside for a, b in pairwise(part))


def test_without_a_moment_there_is_no_span():
    assert list(spans([], 10)) == []


@given(moments, st.data())
def test_what_two_prometheis_saw_is_one_firing(times, data):
    """However they share it: one may have been away, and both may have seen the same."""
    whose = data.draw(st.lists(st.sampled_from("ab+"), min_size=len(times), max_size=len(times)))
    split = [
        series("X", [t for t, w in zip(times, whose, strict=True) if w in (name, "+")])
        for name in "ab"
    ]
    assert firings(split, OWN, 1000) == firings([series("X", times)], OWN, 1000)


def test_it_has_ended_at_the_first_evaluation_that_did_not_find_it():
    assert firings([series("X", every_five(100, 150))], OWN, 300) == [
        Firing("X", "warning", 100, 150)
    ]


def test_evaluations_that_a_busy_host_left_out_end_nothing():
    assert firings([series("X", [100, 105, 120, 125])], OWN, 130) == [
        Firing("X", "warning", 100, None)
    ]


def test_two_hosts_of_one_alert_are_one_firing_and_two_severities_are_two():
    found = firings(
        [
            series("X", every_five(100, 120), host="a"),
            series("X", every_five(110, 150), host="b"),
            series("X", every_five(130, 150), severity="critical"),
        ],
        OWN,
        300,
    )
    assert found == [Firing("X", "warning", 100, 150), Firing("X", "critical", 130, 150)]


# --- what is expected ---------------------------------------------------------------------------


def test_an_alert_is_due_after_its_wait_two_scrapes_and_an_evaluation():
    plan = load_plan("local")
    wanted = expected(plan, load_runbook("datanode-lost").about, RULES)
    (rule,) = [rule for rule in RULES if rule.alert == "DataNodeDown"]
    assert (wanted.due_seconds, wanted.gone_seconds) == (rule.wait_seconds + 40, 40)


def test_one_that_looks_back_is_gone_as_much_later():
    wanted = expected(load_plan("local"), load_runbook("driver-killed").about, RULES)
    assert (wanted.due_seconds, wanted.gone_seconds) == (40, 600 + 40)


def test_how_far_a_promise_looks_back_is_its_longer_window():
    looks_back = expected(load_plan("local"), load_runbook("no-fault").about, RULES).looks_back
    assert looks_back["PromiseAtRisk", "critical"] == 3600
    assert looks_back["PromiseAtRisk", "warning"] == 6 * 3600
    assert looks_back["DataNodeDown", "warning"] == 0


def test_nothing_is_expected_where_nothing_is_broken():
    assert expected(load_plan("local"), load_runbook("no-fault").about, RULES).alert is None


def test_of_several_rules_the_first_one_tells():
    rule = RULES[0].model_copy(update={"alert": "NodeDown", "wait": "5m", "lasts": None})
    quick = rule.model_copy(update={"wait": "15s"})
    about = load_runbook("datanode-lost").about.model_copy(update={"alert": "NodeDown"})
    assert expected(load_plan("local"), about, [rule, quick]).due_seconds == 15 + 40


def test_runbooks_name_alerts_that_there_are():
    names = {rule.alert for rule in RULES}
    assert {name for book in load_runbooks() for name in book.about.also} <= names


def test_only_an_alert_of_its_own_can_be_silent():
    assert [b.name for b in load_runbooks() if b.about.silent and not b.about.alert] == []


@pytest.mark.parametrize("rule", RULES, ids=lambda rule: rule.alert)
def test_a_rule_that_looks_back_says_for_how_long(rule: Alert):
    looks_back = "[" in rule.expr and "predict_linear" not in rule.expr
    assert not looks_back or rule.lasts


# --- what a drill makes of it -------------------------------------------------------------------


def test_an_alert_that_fires_in_time_and_resolves_is_as_it_should_be():
    assert judged(own(140, 190)) == AlertOutcomes(
        fired={"NodeDown": Fired(severity="warning", after_seconds=40, resolved_after_seconds=0)}
    )


def test_it_resolves_after_all_is_healthy():
    assert judged(own(140, 215)).fired["NodeDown"].resolved_after_seconds == 15


def test_it_is_due_from_the_injections_end():
    assert judged(own(157, 190)).problems == []
    assert judged(own(158, 190)).problems == ["NodeDown fired after 56 s, due after 55 s"]


def test_silence_is_a_problem():
    assert judged().problems == ["NodeDown did not fire within 55 s"]


def test_silence_in_too_short_a_fault_says_nothing():
    short = replace(EPISODE, marks=[Mark("inject", 100, 102), Mark("hold", 102, 130)])
    assert alert_outcomes(OWN, [], short, 300) == AlertOutcomes(note=NOT_HELD)
    assert alert_outcomes(OWN, [], replace(EPISODE, marks=[]), 300) == AlertOutcomes(note=NOT_HELD)


def test_one_that_fired_before_says_nothing():
    assert judged(own(80, 110)) == AlertOutcomes(note=FIRED_ALREADY)
    assert judged(own(80, None)) == AlertOutcomes(note=FIRED_ALREADY)
    assert judged(own(60, 90)).problems == ["NodeDown did not fire within 55 s"]


@pytest.mark.parametrize(("ended", "until", "is_wrong"), [
    (239, 300, False),
    (241, 300, True),
    (None, 230, False),  # nobody looked for long enough
    (None, 254, False),
    (None, 256, True),
])  # fmt: skip
def test_one_that_goes_on_is_a_problem(ended, until, is_wrong):
    problems = ["NodeDown went on for 40 s after all was healthy"] if is_wrong else []
    assert judged(own(140, ended), until=until).problems == problems


def test_what_went_on_into_the_next_fault_is_not_known_to_have_resolved():
    """All is healthy at 200; the next fault comes 20 s later, sooner than it is due to be gone."""
    result = judged(own(140, 400), until=220)
    assert result.fired["NodeDown"].resolved_after_seconds is None
    assert result.problems == []
    late = judged(own(140, 400), until=290)
    assert late.problems == ["NodeDown went on for 40 s after all was healthy"]


def test_others_may_wait_for_the_morning_but_may_wake_nobody():
    found = [
        own(140, 190),
        Firing("Slow", "warning", 150, 160),
        Firing("Lost", "critical", 150, 160),
        Firing("AllDown", "critical", 150, 160),
        Firing("Before", "critical", 90, 160),
        Firing("After", "critical", 310, None),
    ]
    result = judged(*found)
    assert result.problems == ["Lost (critical) fired as well"]
    assert set(result.fired) == {"NodeDown", "Slow", "Lost", "AllDown"}


@pytest.mark.parametrize(
    ("broken_before", "problems"),
    [
        (None, ["Lost (critical) fired as well"]),
        (100 - 3601, ["Lost (critical) fired as well"]),
        (100 - 3599, []),
    ],
)
def test_one_that_sums_an_hour_up_tells_of_what_was_broken_in_it(broken_before, problems):
    wanted = replace(OWN, looks_back={("Lost", "critical"): 3600, ("Lost", "warning"): 21600})
    found = [own(140, 190), Firing("Lost", "critical", 150, 160)]
    assert alert_outcomes(wanted, found, EPISODE, 300, broken_before).problems == problems
    found.append(Firing("Other", "critical", 150, 160))
    problems = [*problems, "Other (critical) fired as well"]
    assert alert_outcomes(wanted, found, EPISODE, 300, broken_before).problems == problems


def test_where_nothing_is_broken_nothing_fires():
    found = [Firing("Slow", "warning", 150, 160), Firing("TakenOver", "info", 150, 160)]
    assert judged(*found, wanted=FLOOR).problems == ["Slow (warning) fired as well"]


def test_a_fault_that_heals_at_once_is_silent():
    silent = replace(OWN, silent=True)
    assert judged(wanted=silent) == AlertOutcomes(note=SILENT)
    assert judged(own(140, 190), wanted=silent).problems == [
        "NodeDown fired, though the fault heals before it should"
    ]
    assert judged(own(140, 190), wanted=replace(silent, also=("NodeDown",))).problems == []


def test_one_that_fires_twice_is_told_from_first_to_last_by_its_worst():
    result = judged(own(140, 150), own(160, 230, "critical")).fired["NodeDown"]
    assert result == Fired(severity="critical", after_seconds=40, resolved_after_seconds=30)


def test_what_is_to_end_soon_is_awaited():
    found = [
        own(140, None),
        own(80, None),
        own(140, 150),
        Firing("TakenOver", "info", 140, None),
        Firing("Slow", "warning", 140, None),
    ]
    assert awaited(OWN, found, 100) == [found[0], found[4]]
    assert awaited(replace(OWN, alert="TakenOver"), found, 100) == [found[0], found[3], found[4]]
