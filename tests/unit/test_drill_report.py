"""What counts as passed, and how it is told."""

import random
from contextlib import suppress
from pathlib import Path

import numpy as np
import pytest

from millrace.common.errors import NobodyError, OperatorError
from millrace.drill.nemesis import Nemesis, choose, healing
from millrace.drill.picture import gaps_svg
from millrace.drill.report import (
    Audit,
    Interruption,
    Machine,
    Mark,
    Report,
    Run,
    Span,
    gaps_between,
    markdown,
)
from millrace.drill.runbook import load_runbook, parse_runbook
from millrace.drill.runner import measured, record, require_allowed
from millrace.drill.tables import drills_table, load_summaries, runbooks_index
from millrace.plan import load_plan
from tests.e2e.support import wait_until
from tests.unit.test_drill_runbook import HEAD, text

NOTHING_LOST = Audit(lost=0, duplicated=0, wrong=0, acknowledged=1000, failed=0, in_doubt=0)


def run(*, failures: tuple[str, ...] = (), **gaps: float) -> Run:
    return Run(
        since=10,
        until=20,
        gaps={plane: Interruption(start=11, seconds=seconds) for plane, seconds in gaps.items()},
        marks=[Mark(name="inject", start=10, end=11), Mark(name="rollback", start=18, end=19)],
        failures=list(failures),
    )


def report(
    *runs: Run, audit: Audit | None = NOTHING_LOST, failures: tuple[str, ...] = ()
) -> Report:
    calm = {plane: Interruption(start=1, seconds=0.2) for plane in runs[0].gaps}
    return Report(
        name="kafka",
        title="A leader dies",
        faults=[1],
        date="2026-01-02 03:04Z",
        stack="local",
        machine=Machine(cores=2, memory_gib=16),
        rate=2000,
        goal={"produce": 5, "read": 2},
        calm=Span(since=0, until=10, gaps=calm),
        runs=list(runs),
        failures=list(failures),
        audit=audit,
    )


GOOD = run(produce=4.9, read=1)


def test_the_worst_run_is_held_to_the_goal():
    slow = report(GOOD, run(produce=5.1, read=1), GOOD)
    assert slow.worst == {"produce": 5.1, "read": 1}
    assert slow.missed == ["produce: 5.1 s, the goal is 5 s"]
    assert report(GOOD, GOOD).missed == []


@pytest.mark.parametrize(
    ("made", "verdict"),
    [
        (report(GOOD), "passed"),
        (report(run(produce=6, read=1)), "missed"),
        (report(run(produce=6, read=1, failures=("verify: exit 1",))), "failed"),
        (report(GOOD, failures=("the load ended",)), "failed"),
        (report(GOOD, audit=None), "failed"),
        (report(GOOD, audit=NOTHING_LOST.model_copy(update={"lost": 1})), "lost"),
        (report(GOOD, audit=NOTHING_LOST.model_copy(update={"duplicated": 1})), "lost"),
        (report(GOOD, audit=NOTHING_LOST.model_copy(update={"wrong": 1})), "lost"),
        (report(GOOD, failures=("x",), audit=NOTHING_LOST.model_copy(update={"lost": 1})), "lost"),
    ],
)
def test_loss_failure_and_a_missed_goal_are_told_apart(made, verdict):
    assert made.verdict == verdict
    assert made.title + f": {verdict}" in markdown(made)


def test_a_plane_is_as_silent_as_its_worst_part():
    """`produce` has a list for each partition: one that is dead isn't hidden by the others."""
    steady = np.arange(0, 100, 0.1)
    broken = steady[(steady < 40) | (steady > 47)]
    gaps = gaps_between({"produce": [steady, broken], "read": [steady]}, 10, 90)
    assert gaps["produce"].seconds == pytest.approx(7.1, abs=0.2)
    assert gaps["produce"].start == pytest.approx(40, abs=0.2)
    assert gaps["read"].seconds == pytest.approx(0.1, abs=0.01)


def test_a_run_is_measured_from_its_injection_on():
    silent_before = {"read": [np.arange(20, 30, 0.1)]}
    marks = [Mark(name="inject", start=20, end=21)]
    assert measured(silent_before, 10, 30, marks, []).gaps["read"].seconds < 0.2
    assert measured(silent_before, 10, 30, [], []).gaps["read"].seconds == pytest.approx(10)


def test_the_picture_has_a_strip_for_each_plane():
    seen = {"produce": [np.arange(0, 12, 0.1)], "read": [np.arange(0, 20, 0.1)]}
    svg = gaps_svg(report(GOOD), seen)
    assert svg.count("<!-- produce -->") == svg.count("<!-- read -->") == 1
    assert svg.count("<!-- fault -->") == svg.count("<!-- healed -->") == 1


@pytest.mark.parametrize(
    ("plan", "environments", "reason"),
    [
        ({"drills": False}, "[local]", "does not allow"),
        ({"drills": True}, "[dev, staging]", "may run in dev, staging, not in local"),
    ],
)
def test_a_drill_is_refused_where_it_must_not_run(plan, environments, reason):
    about = parse_runbook(text(HEAD.replace("[local]", environments)), Path("a.md")).about
    with pytest.raises(OperatorError, match=reason):
        require_allowed(load_plan("local").model_copy(update=plan), about)


def test_a_drill_may_run_where_its_environment_is_extended():
    about = parse_runbook(text(), Path("a.md")).about
    assert about.environments == ["local"]
    require_allowed(load_plan("test"), about)


def test_tables_tell_what_was_recorded(tmp_path):
    (tmp_path / "kafka.md").write_text(text())
    runbooks = [load_runbook("kafka", tmp_path)]
    record(report(GOOD), tmp_path / "drills")
    summaries = load_summaries(tmp_path / "drills")
    assert drills_table(summaries, runbooks).splitlines()[-1] == (
        "| [A leader dies](runbooks/kafka.md) | 1 | 1 | produce 5 s, read 2 s "
        "| produce 4.9 s, read 1 s | 0 | 0 |"
    )
    assert runbooks_index(runbooks, summaries).splitlines()[-1] == (
        "| LeaderDied | [A leader dies](kafka.md) | produce 5 s "
        "| produce 4.9 s, read 1 s (2026-01-02) |"
    )


def test_tables_hide_no_bad_result(tmp_path):
    (tmp_path / "kafka.md").write_text(text())
    runbooks = [load_runbook("kafka", tmp_path)]
    record(report(run(produce=6, read=1), audit=None), tmp_path / "drills")
    row = drills_table(load_summaries(tmp_path / "drills"), runbooks).splitlines()[-1]
    assert "**failed** produce 6 s" in row
    assert "| not audited | not audited |" in row
    assert runbooks_index(runbooks, {}).splitlines()[-1].endswith("| not yet |")


class Silent:
    def phase(self, text: str) -> None: ...


def fault(folder: Path, name: str, component: str, **blocks: str):
    (folder / f"{name}.md").write_text(
        text(HEAD.replace("component: kafka", f"component: {component}"), **blocks)
    )
    return load_runbook(name, folder)


def test_the_nemesis_never_breaks_a_component_twice(tmp_path):
    faults = [fault(tmp_path, f"f{n}", ("kafka", "redis")[n % 2]) for n in range(4)]
    rng = random.Random(1)
    assert {choose(rng, faults, {"kafka"}).about.component for _ in range(20)} == {"redis"}
    assert choose(rng, faults, {"kafka", "redis"}) is None


def test_the_nemesis_spares_what_is_not_whole_yet(tmp_path):
    unwell = {"spark"}
    nemesis = Nemesis("local", tmp_path / "run", Silent(), lambda: unwell)
    nemesis.look()
    assert nemesis.broken == {"spark"}
    unwell = set()
    nemesis.look()
    assert nemesis.broken == set()


def test_the_nemesis_leaves_nothing_broken(tmp_path):
    """Not even when it is interrupted, or when a recovery fails."""
    scripts = {
        "inject": f"FAULT={tmp_path}/$$.fault\ntouch $FAULT",
        "rollback": 'rm -f "${FAULT:-}"',
    }
    good = fault(tmp_path, "good", "kafka", **scripts)
    bad = fault(tmp_path, "bad", "redis", recover="false", **scripts)
    nemesis = Nemesis("local", tmp_path / "run", Silent(), set)
    with suppress(KeyboardInterrupt), healing(nemesis):
        nemesis.inject(good, 60)
        nemesis.inject(bad, 0)
        assert "kafka" in nemesis.broken
        raise KeyboardInterrupt
    assert nemesis.broken == set()
    assert list(tmp_path.glob("*.fault")) == []
    assert len([mark for mark in nemesis.marks if mark.name == "rollback"]) == 2
    (failure,) = nemesis.failures
    assert "(recover)" in failure


def test_what_another_fault_keeps_from_being_taken_back_is_taken_back_last(tmp_path):
    down = tmp_path / "host.down"
    host = fault(tmp_path, "host", "redis", inject=f"touch {down}", rollback=f"rm {down}")
    on_it = fault(
        tmp_path,
        "on-it",
        "kafka",
        inject=f"until [ -e {down} ]; do sleep 0.01; done",
        rollback=f"echo tried >> {tmp_path}/tries; [ ! -e {down} ]",
    )
    nemesis = Nemesis("local", tmp_path / "run", Silent(), set)
    with healing(nemesis):
        nemesis.inject(host, 60)
        nemesis.inject(on_it, 0)
        wait_until(lambda: "kafka" not in nemesis.broken, 10, "the rollback was tried")
    assert (tmp_path / "tries").read_text().split() == ["tried", "tried"]
    assert nemesis.verdict == []


def test_a_nemesis_that_cant_take_a_fault_back_has_failed(tmp_path):
    nemesis = Nemesis("local", tmp_path / "run", Silent(), set)
    with healing(nemesis):
        nemesis.inject(fault(tmp_path, "stuck", "kafka", rollback="exit 1"), 0)
    (failure,) = nemesis.verdict
    assert "(rollback)" in failure


def test_a_nemesis_that_finds_no_victim_goes_on(tmp_path):
    good = fault(tmp_path, "good", "kafka")
    nobody = fault(tmp_path, "nobody", "redis", inject=f"exit {NobodyError.exit_code}")
    nemesis = Nemesis("local", tmp_path / "run", Silent(), set)
    with healing(nemesis):
        nemesis.inject(good, 0)
        nemesis.inject(nobody, 0)
    assert nemesis.injected == 1
    assert nemesis.verdict == []
    assert "(inject)" in nemesis.no_victim[0]


def test_a_nemesis_that_breaks_next_to_nothing_has_failed(tmp_path):
    nemesis = Nemesis("local", tmp_path / "run", Silent(), set)
    with healing(nemesis):
        nemesis.inject(
            fault(tmp_path, "nobody", "redis", inject=f"exit {NobodyError.exit_code}"), 0
        )
    assert nemesis.injected == 0
    assert len(nemesis.verdict) == 1


def test_a_nemesis_whose_fault_breaks_by_itself_has_failed(tmp_path):
    nemesis = Nemesis("local", tmp_path / "run", Silent(), set)
    with healing(nemesis):
        nemesis.inject(fault(tmp_path, "good", "kafka"), 0)
        nemesis.inject(fault(tmp_path, "bad", "redis", inject="exit 1"), 0)
    (failure,) = nemesis.verdict
    assert "(inject)" in failure
