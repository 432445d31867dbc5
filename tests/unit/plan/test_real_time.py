"""Jobs in real time in the plan: what is refused, and what everything else says of them."""

import io
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import yaml

from millrace.audit import declared, run
from millrace.audit.declared import audit_job, jobs_of
from millrace.cli import docs
from millrace.cli.dead_letters import declared as leaving_out
from millrace.cli.job_facts import facts_of
from millrace.cli.jobs import Running, jobs_view
from millrace.cli.retention import retention_table
from millrace.cli.views import plan_view
from millrace.common.console import Console
from millrace.common.errors import OperatorError
from millrace.config.jobs import load_job_settings
from millrace.plan import Plan, load_plan, make
from millrace.plan.spark import SparkSettings, rate_problems, real_time_problems
from tests.alerts import JOB, write_down

WHY = {"why": "because it is a test", "source": "a test"}
LOCAL = load_plan("local")
STREAMS = ["events", "impressions", "clicks"]
PARTITIONS = {"events": 6, "clicks": 3}


def declare(folder: Path, **settings: Any) -> None:
    content = {
        "summary": "A test.",
        "settings": {k: {"value": v, **WHY} for k, v in settings.items()},
    }
    (folder / f"{JOB}.yaml").write_text(yaml.safe_dump(content))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return write_down(tmp_path)


@pytest.fixture
def plan(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Plan:
    """With the page's job on trial."""
    monkeypatch.setenv("MILLRACE_TRIAL", str(folder))
    return load_plan("local")


def test_the_job_of_the_page_is_on_trial_in_an_application_of_its_own(plan: Plan) -> None:
    assert plan.applications == LOCAL.applications | {JOB: [JOB]}
    settings = plan.spark.settings
    assert settings.is_real_time(JOB)
    assert not any(settings.is_real_time(job) for job in LOCAL.jobs)
    assert settings.job(JOB).trigger_seconds == 30


def test_it_has_no_settings_of_rows(plan: Plan) -> None:
    own = plan.spark.rendered()["settings"][JOB]
    assert own.keys() == {
        "checkpoint",
        "trigger",
        "trigger_seconds",
        "lag_seconds",
        "shuffle_partitions",
    }


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"trigger": "realtime"}, "trigger: 'realtime' is neither micro-batch nor real-time"),
        ({"watermark_seconds": 60}, "watermark_seconds: in real time"),
        ({"streams": ["events", "clicks"]}, "streams: in real time .* one `stream`"),
        ({"tables": ["campaigns"]}, "tables: in real time"),
        ({"keep_days": 3}, "keep_days: in real time"),
        ({"stream": "klicks"}, "stream: no stream klicks"),
    ],
)
def test_settings_of_rows_are_refused_with_file_and_key(
    folder: Path, settings: dict[str, Any], reason: str
) -> None:
    declare(folder, **{"trigger": "real-time"} | settings)
    with pytest.raises(OperatorError, match=rf"{JOB}.yaml: settings.{reason}"):
        load_job_settings(STREAMS, [folder])


def test_settings_of_its_own_are_its_own(folder: Path) -> None:
    declare(folder, trigger="real-time", least_status=500, stream="clicks")
    assert load_job_settings(STREAMS, [folder])[JOB]["least_status"].value == 500


def problems(plan: Plan, applications: dict[str, list[str]], **changes: Any) -> list[str]:
    settings: SparkSettings = plan.spark.settings
    job = settings.job(JOB).model_copy(update=changes)
    changed = settings.model_copy(update={JOB: job})
    changed.__pydantic_extra__[JOB] = job
    return list(real_time_problems(changed, applications, PARTITIONS))


def test_it_runs_alone(plan: Plan) -> None:
    assert problems(plan, {"insights": ["traffic"], JOB: [JOB]}) == []
    [problem] = problems(plan, {"insights": ["traffic", JOB]})
    assert problem.startswith("applications.insights: alerts runs in real time")
    assert "alerts: [alerts]" in problem


def test_it_has_a_place_for_each_partition(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(PARTITIONS, "events", 7)
    [problem] = problems(plan, {JOB: [JOB]})
    assert "7 partitions, and 2 executors of 3 cores have 6" in problem
    assert "raise spark.executor.instances" in problem
    assert problems(plan, {JOB: [JOB]}, stream="clicks") == []


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"trigger_seconds": 4}, "trigger_seconds 4: .* 5 at least"),
        ({"lag_seconds": 30}, "lag_seconds 30: .* more than trigger_seconds, 30"),
    ],
)
def test_it_notes_how_far_it_is_as_often_as_spark_allows_and_lag_needs(
    plan: Plan, changes: dict[str, int], reason: str
) -> None:
    [problem] = problems(plan, {JOB: [JOB]}, **changes)
    with pytest.raises(AssertionError, match=reason):
        raise AssertionError(problem)


def test_the_plan_refuses_it_beside_others(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    local = make.load_environment("local").model_copy(
        update={"job_folders": [str(folder)], "applications": {"insights": ["traffic", JOB]}}
    )
    monkeypatch.setattr(make, "load_environment", lambda *_: local)
    with pytest.raises(OperatorError, match=r"local.yaml: applications.insights: alerts runs in"):
        load_plan("local")


def test_no_bound_of_batches_holds_it_up(plan: Plan) -> None:
    assert list(rate_problems(plan.spark.settings, [JOB], 10**9, 3)) == []
    assert list(rate_problems(plan.spark.settings, ["traffic"], 10**9, 3)) != []


def shown(renderable: Any) -> str:
    console = Console(file=io.StringIO(), width=200)
    with console.capture() as captured:
        console.print(renderable)
    return captured.get()


def line(text: str) -> str:
    return next(line for line in text.splitlines() if line.strip(" │|[").startswith(JOB))


def test_lists_of_jobs_say_that_it_has_no_rows(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    facts = facts_of(plan, JOB)
    assert (facts.windows, facts.routes, facts.audit, facts.watermark) == ((), (), "", "")
    assert facts.outputs == (plan.names.kafka.topics.results,)
    listed = line(shown(jobs_view(plan, {JOB: Running("running", "worker-1", behind=7)})))
    assert "in real time" in listed
    assert "results topic only" in listed
    rates = shown(plan_view(plan)).partition("what the jobs' settings allow")[2]
    assert "no bound" in line(rates)
    monkeypatch.setattr(docs, "all_jobs", lambda _: [JOB])
    monkeypatch.setattr(docs, "facts_of", lambda *_: facts_in_the_repository(facts))
    [*_, row] = docs._jobs_table(plan).splitlines()
    assert "| none: in real time |" in row
    assert "| – | – | – |" in row


def facts_in_the_repository(facts: Any) -> Any:
    return SimpleNamespace(**vars(facts) | {"file": docs.REPO / "alerts.sql"})


def test_what_is_kept_has_no_rows_of_it(plan: Plan) -> None:
    assert "rows of `sessions`" in retention_table(plan)
    assert JOB not in retention_table(plan)


def test_it_leaves_no_records_out(plan: Plan) -> None:
    assert leaving_out(plan) == ["sessions"]


def test_an_audit_leaves_it_out_and_says_why(plan: Plan, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(declared.zookeeper, "disabled", lambda _: set())
    assert jobs_of(plan, ["events"]) == ["sessions"]
    with pytest.raises(OperatorError, match="alerts runs in real time and keeps no rows"):
        audit_job(plan, JOB, None, None)


def test_its_records_may_come_again_in_the_results_topic(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("compare_windows", "compare_pages"):
        monkeypatch.setattr(run.compare, name, lambda *_: None)
    monkeypatch.setattr(run.compare, "late_requests", lambda *_: 0)
    truth: Any = SimpleNamespace(low={}, high={}, low_pages={})
    row = {"key": "sessions|a", "job": "sessions", "version": 7}
    alert = {"key": "alerts|events|0|1", "job": JOB}
    plane = run._results_plane(truth, truth, [row, alert, alert], set())
    assert (plane.checked, plane.duplicated) == (1, 0)
    assert run._results_plane(truth, truth, [row, row], set()).duplicated == 1
