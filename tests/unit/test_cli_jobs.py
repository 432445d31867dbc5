"""Jobs one by one, as an operator types it; a small service follows the orders."""

from types import SimpleNamespace
from typing import Any

import pytest
from typer.testing import CliRunner

from millrace.audit import positions
from millrace.audit.positions import Positions
from millrace.cli import app
from millrace.cli import jobs as commands
from millrace.common.errors import OperatorError
from millrace.plan import load_plan
from millrace.setup import spark

PLAN = load_plan("local")


class Service:
    """One driver that leads, and what it makes of orders at each look."""

    def __init__(self) -> None:
        self.jobs = {job: "running" for jobs in PLAN.applications.values() for job in jobs}
        self.orders: set[str] = set()
        self.obeys = True
        self.looks = 0

    def disable(self, _: Any, job: str) -> None:
        self.orders.add(job)

    def enable(self, _: Any, job: str) -> None:
        self.orders.discard(job)

    def disabled(self, _: Any) -> set[str]:
        return self.orders

    def drivers(self, _: Any) -> list[dict[str, Any]]:
        self.looks += 1
        for job, state in self.jobs.items() if self.obeys else ():
            wanted = "disabled" if job in self.orders else "running"
            between = "draining" if wanted == "disabled" else "starting"
            self.jobs[job] = wanted if state in (between, wanted) else between
        driver = {"application": "insights", "since": 7, "state": "leading", "host": "worker-2"}
        frozen = driver | {"since": 3, "host": "worker-1"}
        return [frozen, driver | {"jobs": dict(self.jobs)}, driver | {"state": "standby"}]


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Service:
    fake = Service()
    monkeypatch.setattr(commands, "zookeeper", fake)
    monkeypatch.setattr(positions, "zookeeper", fake)
    return fake


def typed(*words: str) -> Any:
    return CliRunner().invoke(app, ["jobs", *words])


def test_a_job_is_disabled_and_enabled_again(service: Service) -> None:
    done = typed("disable", "sessions")
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
    done = typed("disable", "sessions", "--within", "0s")
    assert isinstance(done.exception, OperatorError)
    assert "is not disabled after 0 s, but running" in done.exception.message
    assert service.orders == {"sessions"}  # whoever leads next follows it


def test_what_no_driver_tells_is_told_so() -> None:
    assert commands.state_of(None, "sessions") == "without a driver that leads"
    assert commands.state_of({"host": "worker-1"}, "sessions") == "not told of by its driver"


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
