"""Jobs one by one, as an operator types it; a small service follows the orders."""

import json
import re
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest
from millrace_api.app import router as api
from millrace_jobs.transforms.traffic import WINDOWS
from typer.testing import CliRunner

from millrace.audit import positions
from millrace.audit.positions import Positions
from millrace.cli import app
from millrace.cli import jobs as commands
from millrace.cli.job_facts import all_jobs, facts_of
from millrace.common.errors import OperatorError
from millrace.common.paths import REPO
from millrace.plan import load_plan
from millrace.setup import spark
from millrace_shared.driver_record import DriverRecord

PLAN = load_plan("local")
SCHEMA = REPO / "spark-jobs" / "schema.cql"


class Service:
    """One driver that leads, and what it makes of orders at each look."""

    def __init__(self) -> None:
        self.jobs = dict.fromkeys(PLAN.jobs, "running")
        self.orders: set[str] = set()
        self.obeys = True
        self.looks = 0

    def disable(self, _: Any, job: str) -> None:
        self.orders.add(job)

    def enable(self, _: Any, job: str) -> None:
        self.orders.discard(job)

    def disabled(self, _: Any) -> set[str]:
        return self.orders

    def drivers(self, _: Any) -> dict[str, list[DriverRecord]]:
        self.looks += 1
        for job, state in self.jobs.items() if self.obeys else ():
            wanted = "disabled" if job in self.orders else "running"
            between = "draining" if wanted == "disabled" else "starting"
            self.jobs[job] = wanted if state in (between, wanted) else between
        leads = DriverRecord("run", "worker-2", "leading", since=7, jobs=dict(self.jobs))
        frozen = replace(leads, since=3, host="worker-1", jobs={})
        return {"insights": [frozen, leads, replace(leads, state="standby", jobs={})]}


class Brokers:
    """Who tells how far a job is behind."""

    KafkaException = RuntimeError

    def connect(self, _: Any) -> None: ...

    def lag(self, _: Any, __: Any, job: str) -> int:
        if job == "archive":
            raise self.KafkaException("its position can't be read")
        return 1234


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Service:
    fake = Service()
    monkeypatch.setattr(commands, "kafka", Brokers())
    monkeypatch.setattr(commands, "zookeeper", fake)
    monkeypatch.setattr(positions, "zookeeper", fake)
    return fake


def typed(*words: str) -> Any:
    return CliRunner().invoke(app, ["jobs", *words])


def test_a_job_is_disabled_and_enabled_again(service: Service) -> None:
    done = typed("disable", "sessions", "--yes")
    assert done.exit_code == 0
    assert "sessions: disabled on worker-2" in done.output
    assert service.jobs == {"archive": "running", "traffic": "running", "sessions": "disabled"}
    assert service.looks == 2  # it waited for the batch to end
    done = typed("enable", "sessions")
    assert "sessions: runs on worker-2" in done.output
    assert service.jobs["sessions"] == "running"


def test_a_job_that_nobody_runs_is_refused_with_those_that_are(service: Service) -> None:
    done = typed("disable", "nobody")
    assert done.exit_code != 0
    assert "they run archive, traffic, sessions" in str(done.exception)
    assert service.orders == set()


def test_an_order_that_nobody_follows_is_told(service: Service) -> None:
    service.obeys = False
    done = typed("disable", "sessions", "--within", "0s", "--yes")
    assert isinstance(done.exception, OperatorError)
    assert "is not disabled after 0 s, but running" in done.exception.message
    assert service.orders == {"sessions"}  # whoever leads next follows it


def test_what_no_driver_tells_is_told_so() -> None:
    assert commands.state_of(None, "sessions") == "nobody leads"
    silent = DriverRecord("run", "worker-1", "leading", since=7)
    assert commands.state_of(silent, "sessions") == "not told of by its driver"


def rows(output: str) -> dict[str, list[str]]:
    """By its first cell, each row of a printed table."""
    lines = [line.split("│") for line in output.splitlines() if line.startswith("│")]
    return {cells[1].strip(): [cell.strip() for cell in cells[2:-1]] for cells in lines}


def test_jobs_are_listed_with_what_they_are_and_do(service: Service) -> None:
    service.disable(PLAN, "sessions")
    service.drivers(PLAN)
    shown = rows(typed().output)
    assert shown["sessions"] == [
        "insights",
        "Python file",
        "events",
        "disabled on worker-2",
        "1,234",
        "/v1/jobs/sessions",
    ]
    assert shown["traffic"][:4] == ["insights", "program", "events", "running on worker-2"]
    assert shown["archive"][4] == "–"
    assert typed("list").output == typed().output


def test_a_job_that_failed_is_listed_with_the_reason(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    [_, leads, _] = service.drivers(PLAN)["insights"]
    told = replace(
        leads,
        jobs={"sessions": "failed"},
        troubles={"sessions": "it is the code"},
        runbooks={"sessions": "job-failed"},
    )
    monkeypatch.setattr(service, "drivers", lambda _: {"insights": [told]})
    [row] = json.loads(typed("list", "--json").output)["jobs"][2:]
    assert (row["job"], row["state"], row["host"]) == ("sessions", "failed", "worker-2")
    assert (row["trouble"], row["runbook"]) == ("it is the code", "job-failed")
    assert commands.said(row) == "failed on worker-2: it is the code (runbooks/job-failed.md)"


def test_without_a_cluster_jobs_are_listed_by_the_plan(
    service: Service, monkeypatch: pytest.MonkeyPatch
) -> None:
    def drivers(_: Any) -> None:
        raise OperatorError("ZooKeeper doesn't say who drives: timed out")

    monkeypatch.setattr(service, "drivers", drivers)
    done = typed()
    assert done.exit_code == 0
    shown = rows(done.output)
    assert shown["sessions"][1:5] == ["Python file", "events", "–", "–"]
    assert "what they do now is unknown: ZooKeeper doesn't say" in done.output
    told = json.loads(typed("--json").output)
    assert told["unknown"] == "ZooKeeper doesn't say who drives: timed out"
    assert told["jobs"][2]["state"] is None


def test_a_disabled_job_is_listed_as_such_while_nobody_leads(service: Service) -> None:
    service.disable(PLAN, "sessions")
    service.drivers = lambda _: {"insights": []}  # type: ignore[method-assign]
    shown = rows(typed().output)
    assert (shown["sessions"][3], shown["traffic"][3]) == ("disabled", "nobody leads")


def test_what_is_told_of_our_programs_is_true() -> None:
    archive, traffic = (facts_of(PLAN, job) for job in ("archive", "traffic"))
    assert set(traffic.windows) == WINDOWS.keys()
    tables = set(re.findall(r"EXISTS :keyspace\.(\w+)", SCHEMA.read_text())) | {"archive"}
    assert {*archive.outputs, *traffic.outputs} <= tables
    routes = {getattr(route, "path", "") for route in api.routes}
    assert {*archive.routes, *traffic.routes} <= routes


def test_every_job_that_ships_has_its_facts() -> None:
    found = {job: facts_of(PLAN, job) for job in all_jobs(PLAN)}
    assert all(job.file.exists() and job.summary and job.streams for job in found.values())
    assert {job.kind for job in found.values()} == {"program", "Python file", "SQL file"}


def test_without_a_java_it_is_said_where_jobs_are_checked_all_the_same(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(spark.shutil, "which", lambda _: None)
    monkeypatch.delenv("JAVA_HOME", raising=False)
    refused = typed("check", "sessions").exception
    assert isinstance(refused, OperatorError)
    assert "needs a Java" in refused.message
    assert "openjdk" in refused.hint
    assert "`millrace deploy`" in refused.hint


@pytest.mark.parametrize("is_there_already", [True, False])
def test_an_audit_waits_for_no_disabled_job(service: Service, is_there_already: bool) -> None:
    waiting: Any = SimpleNamespace(_plan=PLAN)
    service.disable(PLAN, "archive")

    def wait() -> None:
        Positions._wait(waiting, lambda: is_there_already, float("inf"), "archive")

    if is_there_already:
        wait()
    else:
        with pytest.raises(OperatorError, match="archive is disabled"):
            wait()
