"""What counts as passed, and how it is told."""

import io
import json
import random
import re
from contextlib import suppress
from datetime import datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from millrace.audit import declared
from millrace.audit import run as audit_run
from millrace.audit.report import Plane as AuditedPlane
from millrace.audit.report import Report as AuditReport
from millrace.cli.docs import README
from millrace.common.console import Console
from millrace.common.errors import NobodyError, OperatorError
from millrace.drill import runner
from millrace.drill.cluster import Cluster
from millrace.drill.command import app, reports_view
from millrace.drill.floor import CONTROL, judged_by_recorded_floor
from millrace.drill.guarantees import GUARANTEES, guarantees_table
from millrace.drill.nemesis import Nemesis, choose, healing
from millrace.drill.options import DrillOptions
from millrace.drill.picture import gaps_svg
from millrace.drill.rate import sustained
from millrace.drill.report import (
    AlertOutcomes,
    Audit,
    Fired,
    Gaps,
    JobAudit,
    Machine,
    Report,
    Run,
    combined,
    markdown,
    measured,
)
from millrace.drill.runbook import Plane, Runbook, load_runbook, load_runbooks, parse_runbook
from millrace.drill.runner import record, require_allowed
from millrace.drill.standby import youngest
from millrace.drill.tables import (
    RECORDS,
    alert_cell,
    drills_page,
    drills_table,
    load_reasons,
    load_records,
    not_passed,
    runbooks_index,
)
from millrace.drill.timeline import Episode, Mark, Span, Timeline, longest_gaps
from millrace.drill.watch import audited, is_advertised
from millrace.ledger.store import Ledger
from millrace.plan import Plan, load_plan
from millrace_shared.driver_record import DriverRecord
from tests.unit.drill.test_runbook import HEAD, text
from tests.waiting import soon


def planes(**seconds: float) -> Gaps:
    return {Plane(plane): value for plane, value in seconds.items()}


NOTHING_LOST = Audit(lost=0, duplicated=0, wrong=0, acknowledged=1000, failed=0, in_doubt=0)


def run(
    *,
    failures: tuple[str, ...] = (),
    idle: float | None = None,
    floor: dict[str, float] | None = None,
    **gaps: float,
) -> Run:
    return Run(
        gaps=planes(**gaps),
        floor=None if floor is None else planes(**floor),
        standby_idle_seconds=idle,
        failures=list(failures),
    )


def report(
    *runs: Run, audit: Audit | None = NOTHING_LOST, failures: tuple[str, ...] = (), **changes: Any
) -> Report:
    made = Report(
        name="kafka",
        title="A leader dies",
        faults=[1],
        date="2026-01-02 03:04Z",
        stack="local",
        machine=Machine(cores=2, memory_gib=16),
        rate=2000,
        goal={Plane.PRODUCE: 5, Plane.READ: 2},
        runs=list(runs),
        failures=list(failures),
        audit=audit,
    )
    return made.model_copy(update=changes)


GOOD = run(produce=4.9, read=1)


@pytest.mark.parametrize(
    ("jobs", "told"),
    [
        (["archive", "traffic"], "2,000 events/s, archive and traffic, 1 run, 2 cores"),
        ([], "2,000 events/s, 1 run, 2 cores"),
    ],
)
def test_a_report_says_which_jobs_ran_where_it_knows(jobs, told):
    assert told in markdown(report(GOOD, jobs=jobs))


def test_a_report_names_the_processor_where_it_knows():
    machine = Machine(cores=2, cpus=["Intel Xeon"], memory_gib=23.5)
    assert "2 cores (Intel Xeon), 24 GiB." in markdown(report(GOOD, machine=machine))
    assert "2 cores, 16 GiB." in markdown(report(GOOD))


def test_the_worst_run_is_held_to_the_goal():
    slow = report(GOOD, run(produce=5.1, read=1), GOOD)
    assert slow.worst == {"produce": 5.1, "read": 1}
    assert slow.missed == ["produce: 5.1 s added, the goal is 5 s"]
    assert report(GOOD, GOOD).missed == []


def test_a_goal_holds_for_what_the_fault_added_to_its_own_runs_floor():
    slow = run(produce=5.9, read=1, floor={"produce": 1.1, "read": 0.4})
    slower = run(produce=5.8, read=1, floor={"produce": 0.7, "read": 1.2})
    assert report(slow).verdict == "passed"
    both = report(slow, slower)
    assert both.added == {"produce": (5.1, 0.7), "read": (0.6, 0.4)}
    assert both.missed == ["produce: 5.1 s added, the goal is 5 s"]


def test_a_goal_is_not_missed_by_the_last_digit_of_a_float():
    assert 2.14 - 1.14 > 1
    close = run(produce=2.14, floor={"produce": 1.14})
    assert report(close, goal=planes(produce=1)).missed == []


SECONDS = st.decimals(0, 700, places=2).map(float)


@given(st.lists(st.tuples(SECONDS, SECONDS, SECONDS), min_size=1, max_size=4), SECONDS)
def test_a_fault_adds_at_least_nothing_and_a_higher_floor_misses_no_more(measured, goal):
    """Each run as its gap, its floor, and how much higher the floor might have been."""

    def of(*higher: float) -> Report:
        runs = [
            run(produce=gap, floor={"produce": floor + more})
            for (gap, floor, _), more in zip(measured, higher, strict=True)
        ]
        return report(*runs, goal=planes(produce=goal))

    as_it_was = of(*(0.0 for _ in measured))
    with_higher = of(*(more for *_, more in measured))
    unjudged = report(*(run(produce=gap) for gap, *_ in measured), goal=planes(produce=goal))
    added = [of.added[Plane.PRODUCE].seconds for of in (with_higher, as_it_was, unjudged)]
    assert added == sorted(added)
    assert added[0] >= 0
    assert added[2] == unjudged.worst[Plane.PRODUCE]
    assert len(with_higher.missed) <= len(as_it_was.missed) <= len(unjudged.missed)
    assert bool(as_it_was.missed) == any(round(gap - floor, 2) > goal for gap, floor, _ in measured)


def control(words: str = "", cpus: tuple[str, ...] = ("A", "B"), **longest: float) -> Report:
    lower = dict.fromkeys(longest, 0.1)
    return report(
        run(**lower),
        run(**longest),
        name=CONTROL,
        faults=[],
        goal={},
        machine=Machine(cores=2, cpus=list(cpus), memory_gib=16),
    ).of_variant(words)


def floors(*reports: Report) -> dict[str, list[Gaps | None]]:
    judged = judged_by_recorded_floor({each.name: each for each in reports})
    return {name: [run.floor for run in each.runs] for name, each in judged.items()}


def test_runs_without_a_floor_stand_on_the_longest_gaps_of_the_recorded_control_drill():
    own = run(produce=6, floor={"produce": 0.5})
    found = floors(control(produce=1.1, read=0.9), report(own, run(produce=6)))
    assert found["kafka"] == [{"produce": 0.5}, {"produce": 1.1, "read": 0.9}]
    assert found[CONTROL] == [None, None]  # it is the floor


def test_a_variant_stands_on_its_own_control_drill():
    one = report(GOOD)
    found = floors(
        control(produce=1.1), control("Seven jobs", produce=7), one, one.of_variant("seven jobs")
    )
    assert found["kafka"] == [{"produce": 1.1}]
    assert found["kafka-seven-jobs"] == [{"produce": 7}]
    assert found[f"{CONTROL}-seven-jobs"] == [None, None]


@pytest.mark.parametrize(
    ("cores", "of_control", "known"),
    [
        (["A"], ("A", "B"), True),
        (["A", "B"], ("A", "B"), True),
        ([], ("A", "B"), True),  # an older record doesn't say
        (["C"], (), True),
        (["C"], ("A", "B"), False),
        (["A", "C"], ("A", "B"), False),
    ],
)
def test_no_record_stands_on_the_floor_of_other_cores(cores, of_control, known):
    machine = Machine(cores=2, cpus=cores, memory_gib=16)
    found = floors(control(cpus=of_control, produce=1.1), report(GOOD, machine=machine))
    assert found["kafka"] == [{"produce": 1.1} if known else None]


def test_without_a_control_drill_all_that_was_measured_counts():
    assert floors(report(GOOD))["kafka"] == [None]
    assert report(GOOD).added == {"produce": (4.9, 0), "read": (1, 0)}


def test_each_recorded_drill_that_missed_says_why_in_a_sentence_and_no_other():
    reasons = load_reasons()
    assert list(reasons) == not_passed(load_records())
    assert [name for name, why in reasons.items() if not re.fullmatch(r"[A-Z].{40,}\.", why)] == []
    assert [name for name, why in reasons.items() if re.search(r"\. [A-Z]", why)] == []


def test_a_drill_that_missed_stands_on_the_page_with_its_reason(tmp_path, runbooks):
    slow = report(run(produce=7.2, read=2.1, floor={"produce": 1.1, "read": 0.4}))
    page = drills_page(recorded(tmp_path, slow), runbooks, {"kafka": "It was late."})
    assert "| **6.1** / 5 (1.1) | – | 1.7 / 2 (0.4) |" in page
    assert "\n- [A leader dies](#kafka): It was late.\n" in page
    assert "\n| produce | 1.10 | 7.20 | 6.10 | 5 |\n" in page
    assert "was missed" not in drills_page(recorded(tmp_path, report(GOOD)), runbooks, {})


def test_what_is_promised_is_told_by_the_drill_to_which_most_was_added():
    killed, upgrade = load_records()["driver-killed"], load_records()["upgrade"]
    lost = NOTHING_LOST.model_copy(update={"lost": 1, "duplicated": 2})
    slow = run(process=8.5, read=6.9, hdfs=99, floor={"process": 2, "read": 0.2})
    changes = {"goal": planes(process=5), "audit": lost}
    worst = report(slow, name="edge-host-lost", **changes)
    fine = report(run(process=9, floor={"process": 3}), name="kafka-host-lost")
    unaudited = upgrade.model_copy(update={"audit": None})
    found = [killed, unaudited, worst, fine]
    rows = guarantees_table({each.name: each for each in found}, README).splitlines()[2:]
    there = "docs/drills/README.md"
    assert rows[0] == f"| Any host is lost | [reads 6.7 (0.2)]({there}#edge-host-lost) | 1 | 2 |"
    assert "new results **7.1** / 5 (2.9)" in rows[1]
    assert rows[2] == "| A whole zone is lost | not recorded |  |  |"
    assert rows[3].endswith("| not audited | not audited |")
    assert rows[-1].startswith(f"| [All 4 drills]({there}), ")


def test_every_promise_is_drilled():
    assert {name for names in GUARANTEES.values() for name in names} <= load_records().keys()


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
    gaps = longest_gaps({"produce": [steady, broken], "read": [steady]}, Span(10, 90))
    assert gaps["produce"] == pytest.approx(7.1, abs=0.2)
    assert gaps["read"] == pytest.approx(0.1, abs=0.01)


def test_each_episode_is_a_run_with_its_standbys_age():
    seen = {"read": [np.arange(0, 10, 0.1), np.arange(20, 40, 0.1)]}
    # The second partition is dead until 20.
    old = Episode(Span(20, 40), standby_since=-1780, floor=Span(2, 5))
    nobody = Episode(Span(0, 10), failures=["verify: exit 1"])
    runs = measured(Timeline(seen, [old, nobody]))
    assert [run.floor for run in runs] == [{"read": pytest.approx(3)}, None]
    assert [run.standby_idle_seconds for run in runs] == [1800, None]
    assert [run.failures for run in runs] == [[], ["verify: exit 1"]]


def test_the_age_of_a_drill_is_that_of_its_youngest_standby():
    assert report(run(read=1, idle=1800), run(read=1, idle=90)).standby_idle_seconds == 90
    assert report(run(read=1, idle=1800), run(read=1)).standby_idle_seconds is None
    assert "30 min" in markdown(report(run(read=1, idle=1800)))


def test_runs_with_audits_of_their_own_are_one_drill():
    first = report(run(produce=4, read=1, idle=1900, floor={"read": 0.3}))
    second = report(
        run(produce=6, read=1, idle=1800, floor={"read": 0.2}),
        audit=NOTHING_LOST.model_copy(update={"lost": 1}),
    )
    both = combined([first, second])
    assert both.worst == {"produce": 6, "read": 1}
    assert both.floor == {"read": 0.3}
    assert both.standby_idle_seconds == 1800
    assert (both.audit.lost, both.audit.acknowledged) == (1, 2000)
    assert both.verdict == "lost"


def test_runs_of_several_machines_name_each_processor_once():
    of = [Machine(cores=2, cpus=cpus, memory_gib=16) for cpus in ([], ["A"], ["B"], ["A"])]
    both = combined([report(GOOD, machine=machine) for machine in of])
    assert both.machine == Machine(cores=2, cpus=["A", "B"], memory_gib=16)
    assert "2 cores (A and B), 16 GiB." in markdown(both)
    assert combined([both, report(GOOD, machine=of[1])]).machine == both.machine
    assert combined([report(GOOD)]).machine.cpus == []


def test_the_jobs_of_several_audits_are_added():
    of_jobs = {"sessions": JobAudit(rows=100, lost=0, duplicated=0, wrong=0)}
    first = report(GOOD, audit=NOTHING_LOST.model_copy(update={"jobs": of_jobs}))
    second = report(GOOD)  # the job was disabled meanwhile
    both = combined([first, first, second])
    assert both.audit.jobs == {"sessions": JobAudit(rows=200, lost=0, duplicated=0, wrong=0)}
    assert "Rows counted again: 200 of `sessions`." in markdown(both)
    assert Report.model_validate_json(both.model_dump_json()) == both


def test_a_drill_audits_the_rows_of_every_declared_job(tmp_path, monkeypatch):
    fates = SimpleNamespace(started=3600.0, acked=np.ones(9, bool), failed=0, in_doubt=0)
    monkeypatch.setattr(Ledger, "open", lambda path: fates)
    monkeypatch.setattr(declared.zookeeper, "disabled", lambda plan: {"status_by_minute"})
    monkeypatch.setattr(declared, "window_of", lambda plan, job: timedelta(minutes=30))
    monkeypatch.setattr(audit_run, "audit", lambda plan, ledgers, wait: audited_report("events", 9))
    asked = []

    def audit_job(plan: Plan, job: str, start: datetime, end: None, wait: float) -> AuditReport:
        asked.append((job, start.isoformat()))
        return audited_report(job, 5, lost=1)

    monkeypatch.setattr(declared, "audit_job", audit_job)
    plan = load_plan("local")
    jobs = ["archive", "archive_clicks", "traffic", "sessions", "status_by_minute", "attribution"]
    found = audited(plan.model_copy(update={"applications": {"insights": jobs}}), tmp_path)
    assert asked == [(job, "1970-01-01T00:30:00+00:00") for job in ("sessions", "attribution")]
    one = JobAudit(rows=5, lost=1, duplicated=0, wrong=0)
    assert found.jobs == {"sessions": one, "attribution": one}
    assert (found.lost, found.duplicated, found.wrong, found.acknowledged) == (2, 0, 0, 9)


def test_a_drill_advertises_where_a_running_job_reads_it(monkeypatch):
    disabled: set[str] = set()
    monkeypatch.setattr(declared.zookeeper, "disabled", lambda plan: disabled)
    plan = load_plan("local")
    assert not is_advertised(plan)
    jobs = [*plan.jobs, "archive_clicks", "archive_impressions", "attribution"]
    plan = plan.model_copy(update={"applications": {"insights": jobs}})
    assert is_advertised(plan)
    disabled.add("attribution")
    assert not is_advertised(plan)


def audited_report(name: str, checked: int, lost: int = 0) -> AuditReport:
    return AuditReport([name], checked, 0, 0, [AuditedPlane(name, checked=checked, lost=lost)])


def test_a_run_that_was_not_audited_leaves_the_drill_unaudited():
    unaudited = report(GOOD, audit=None, failures=("audit: no answer",))
    both = combined([report(GOOD), unaudited])
    assert both.audit is None
    assert both.failures == ["audit: no answer"]


def test_the_youngest_standby_is_told_only_if_every_application_has_one():
    def driver(state: str, since: float) -> DriverRecord:
        return DriverRecord("run", "worker-1", state, since)

    a = [driver("leading", 90), driver("standby", 10), driver("standby", 30)]
    assert youngest({"a": a, "b": [driver("standby", 20)]}) == 30
    assert youngest({"a": a, "b": a[:1]}) is None
    assert youngest({"a": []}) is None


def test_the_picture_has_a_strip_for_each_plane():
    seen = {"produce": [np.arange(0, 12, 0.1)], "read": [np.arange(0, 20, 0.1)]}
    marks = [Mark("inject", 10, 11), Mark("rollback", 18, 19)]
    episode = Episode(Span(10, 20), marks, floor=Span(0, 10))
    floor, worst = (longest_gaps(seen, span) for span in (episode.floor, episode.span))
    svg = gaps_svg(Timeline(seen, [episode]), floor, worst)
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


@pytest.fixture
def runbooks(tmp_path: Path) -> list[Runbook]:
    """One of Kafka, and a control run."""
    (tmp_path / "kafka.md").write_text(text())
    control = HEAD.replace("faults: [1]", "faults: []").replace("A leader dies", "Nothing breaks")
    (tmp_path / "none.md").write_text(text(control.replace("alert: LeaderDied\n", "")))
    return load_runbooks(tmp_path)


def recorded(folder: Path, *reports: Report) -> dict[str, Report]:
    for report in reports:
        record(report, folder / f"{report.name}.json")
    return load_records(folder)


def test_a_report_survives_being_recorded(tmp_path):
    made = report(run(produce=4.9, read=1, idle=1800.5), GOOD, failures=("audit: no answer",))
    assert recorded(tmp_path, made) == {"kafka": made}


def test_tables_tell_what_was_recorded(tmp_path, runbooks):
    records = recorded(tmp_path / "drills", report(GOOD))
    *_, floor, row = drills_table(records, runbooks).splitlines()
    assert floor == "| [Nothing breaks](../../runbooks/none.md) | not recorded yet | | | | | | | |"
    assert row == (
        "| [A leader dies](#kafka) | passed | 4.9 / 5 | – | 1 / 2 | – | 0, 0, 0 | – | – |"
    )
    assert runbooks_index(runbooks, records).splitlines()[-1] == (
        "| LeaderDied | [A leader dies](kafka.md) | produce 5 s "
        "| [passed](../docs/drills/README.md#kafka), 2026-01-02 |"
    )
    page = drills_page(records, runbooks, {})
    assert "\n### kafka\n\n[A leader dies](../../runbooks/kafka.md): passed.\n" in page
    assert "\n| produce |  | 4.90 | 4.90 | 5 |\n" in page


def test_links_of_the_generated_tables_lead_somewhere():
    records, runbooks = load_records(), load_runbooks()
    page = drills_page(records, runbooks, load_reasons())
    headings = set(re.findall(r"^### (.+)$", page, re.MULTILINE))
    assert headings == records.keys()
    assert set(re.findall(r"\]\(#([a-z-]+)\)", page)) == headings
    elsewhere = [
        drills_table(records, runbooks, README),
        runbooks_index(runbooks, records),
        guarantees_table(records, README),
    ]
    for table in elsewhere:
        assert set(re.findall(r"docs/drills/README\.md#([a-z-]+)", table)) <= headings
    for target in re.findall(r"\]\(([^)#]+)\)", page):
        assert (RECORDS / target).exists(), target


def test_the_control_run_stands_first(tmp_path, runbooks):
    unbroken = {"name": "none", "title": "Floor", "faults": [], "goal": {}}
    control = report(run(read=1, process=1.5, idle=60), **unbroken)
    lighter = report(GOOD).model_copy(update={"rate": 500.0})
    records = recorded(tmp_path / "drills", lighter, control)
    *_, floor, row = drills_table(records, runbooks).splitlines()
    assert floor.startswith("| [Floor](#none) | passed | – | 1.5 | 1 |")
    assert floor.endswith("| 1 min | – |")
    assert row.startswith("| [A leader dies](#kafka), under 500 events/s |")


def test_a_component_is_shown_by_the_plane_that_is_nearest_to_its_goal(tmp_path, runbooks):
    def cell(goal: dict[str, float], **gaps: float) -> str:
        goals = {Plane(plane): limit for plane, limit in goal.items()}
        records = recorded(tmp_path / "drills", report(run(**gaps), goal=goals))
        return drills_table(records, runbooks).splitlines()[-1].split(" | ")[5]

    assert cell({"hdfs": 30, "yarn": 10}, hdfs=12, yarn=9, kafka_control=1) == "yarn 9 / 10"
    assert cell({"hdfs": 10, "yarn": 10}, hdfs=12, yarn=9) == "hdfs **12.0** / 10"
    assert cell({}, kafka_control=1.25, yarn=9) == "kafka_control 1.2"


def fired(after: float, resolved: float | None, severity: str = "warning") -> Fired:
    return Fired(severity=severity, after_seconds=after, resolved_after_seconds=resolved)


def told_run(told: AlertOutcomes) -> Run:
    return run(produce=1, read=1).model_copy(update={"alerts": told})


IN_TIME = {"LeaderDied": fired(24, 0)}


@pytest.mark.parametrize(
    ("told", "cell", "verdict"),
    [
        ([AlertOutcomes(fired=IN_TIME)], "LeaderDied 24, 0", "passed"),
        (
            [
                AlertOutcomes(fired=IN_TIME),
                AlertOutcomes(fired={"LeaderDied": fired(31, 12), "Slow": fired(90, 0)}),
            ],
            "LeaderDied 31, 12",
            "passed",
        ),
        (
            [AlertOutcomes(fired=IN_TIME), AlertOutcomes(fired={"LeaderDied": fired(3, None)})],
            "LeaderDied 24, –",
            "passed",
        ),
        (
            [AlertOutcomes(note="not held long enough")],
            "LeaderDied: not held long enough",
            "passed",
        ),
        ([AlertOutcomes(problems=["x"])], "**LeaderDied: did not fire**", "missed"),
        ([AlertOutcomes(fired=IN_TIME, problems=["x"])], "**LeaderDied 24, 0**", "missed"),
    ],
)
def test_the_alert_is_told_by_its_slowest_run(told, cell, verdict):
    made = report(*map(told_run, told), alert="LeaderDied")
    assert alert_cell(made) == cell
    assert made.verdict == verdict


def test_the_floor_has_no_alert():
    assert alert_cell(report(told_run(AlertOutcomes()))) == "none"
    loud = AlertOutcomes(problems=["Slow (warning) fired as well"])
    assert alert_cell(report(told_run(loud))) == "**none**"


def test_a_report_lists_what_fired_in_each_run_the_own_alert_first():
    made = report(
        told_run(AlertOutcomes(fired=IN_TIME)),
        told_run(
            AlertOutcomes(fired={"Gone": fired(9, 1, "critical"), "LeaderDied": fired(31, None)})
        ),
        alert="LeaderDied",
    )
    assert (
        "| alert fired after (s), resolved after all was healthy (s) | severity | run 1 | run 2 |\n"
        "|---|---|---:|---:|\n"
        "| LeaderDied | warning | 24, 0 | 31, – |\n"
        "| Gone | critical | – | 9, 1 |\n"
    ) in markdown(made)
    assert "No alert fired." in markdown(report(told_run(AlertOutcomes())))
    assert "alert" not in markdown(report(GOOD))


def test_tables_hide_no_bad_result(tmp_path, runbooks):
    bad = report(run(produce=5.04, read=1), audit=None)
    records = recorded(tmp_path / "drills", bad)
    row = drills_table(records, runbooks).splitlines()[-1]
    assert "| **failed** | **5.04** / 5 |" in row
    assert "| not audited |" in row
    assert "kafka.md): **failed**." in drills_page(records, runbooks, {})
    assert runbooks_index(runbooks, {}).splitlines()[-1].endswith("| not recorded yet |")


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
    unhealthy = {"spark"}
    nemesis = Nemesis("local", tmp_path / "run", Silent(), lambda: unhealthy)
    nemesis.look()
    assert nemesis.broken == {"spark"}
    unhealthy = set()
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
        soon(lambda: "kafka" not in nemesis.broken, "the rollback was tried")
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


def test_a_variant_is_recorded_beside_the_drill_itself():
    own = report(GOOD)
    assert own.of_variant("") == own
    variant = own.of_variant("All five jobs")
    assert (variant.name, variant.title) == (
        f"{own.name}-all-five-jobs",
        f"{own.title} (All five jobs)",
    )


@pytest.mark.parametrize(
    ("arguments", "options"),
    [
        (
            ["run", "driver-killed", "--times", "1", "--floor", "20", "--standby-idle", "30"],
            DrillOptions(times=1, standby_idle_minutes=30, floor_seconds=20),
        ),
        (
            ["all", "--only", "driver-killed", "--rate", "500", "--alerts"],
            DrillOptions(rate=500, await_alerts=True, floor_seconds=60),
        ),
        (["random", "--floor", "9"], DrillOptions(floor_seconds=9)),
        (["run", "driver-killed", "--rate", "50%"], DrillOptions(rate=sustained() / 2)),
    ],
)
def test_a_drill_is_performed_as_the_command_line_says(monkeypatch, arguments, options):
    asked = []

    def perform(cluster: Cluster, drill: Any, options: DrillOptions, console: Console) -> Report:
        asked.append(options)
        return report(GOOD)

    monkeypatch.setattr(runner, "perform", perform)
    monkeypatch.setattr(runner, "run", perform)
    monkeypatch.setattr(Cluster, "problems", lambda _: [])
    done = CliRunner().invoke(app, [*arguments, "--json", "--yes"])
    assert done.exit_code == 0
    assert [one["verdict"] for one in json.loads(done.stdout)["reports"]] == ["passed"]
    assert asked == [options]


@pytest.mark.parametrize("rate", ["half", "50 of 100", "0.5", "0%", "nan", "inf"])
def test_a_rate_that_is_no_load_is_refused(rate):
    done = CliRunner().invoke(app, ["run", "driver-killed", "--yes", f"--rate={rate}"])
    assert (done.exit_code, repr(rate) in done.output) == (2, True)


def test_what_a_drill_prints_has_a_line_for_each_plane_with_a_goal_and_marks_what_was_missed() -> (
    None
):
    """Planes without a goal stand in the report; beside the others nobody would find those."""
    console = Console(width=110, record=True, force_terminal=True, file=io.StringIO())
    console.print(reports_view([report(run(produce=5.2, read=1, hdfs=9))]))
    text = console.export_text(clear=False, styles=True)
    lines = [line for line in text.splitlines() if "│" in line]
    (produce,) = [line for line in lines if "produce" in line]
    (read,) = [line for line in lines if "read" in line]
    assert "produce \x1b[1;31m5.2\x1b[0m / 5" in produce
    assert "read 1 / 2" in read
    assert "hdfs" not in "".join(lines)
