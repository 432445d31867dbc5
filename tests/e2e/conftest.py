"""Fixtures over the running cluster of stack ``$MILLRACE_STACK``."""

import uuid
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import count
from pathlib import Path

import pytest

from millrace.audit.page_views import PageViewRule
from millrace.common.paths import REPO, stack_name
from millrace.generate.traffic import Website
from millrace.plan import Plan, load_plan
from millrace.replay.pipeline import Pipeline
from tests.e2e.support import (
    Insights,
    extra_jobs,
    millrace,
    only_jobs_of_local,
    used_months,
)
from tests.recount import Recount, recount

REAL_LOG = REPO.parent / "shared" / "data" / "access.log"
GENERATED_DAYS = 3
GENERATED_END = datetime(2015, 5, 20, 21, tzinfo=UTC)
GENERATED_LINES = 10_000
MONTH_DAYS = 28  # a multiple of a week, so that days of the week stay what they are


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.cluster)


@pytest.fixture(scope="session")
def plan() -> Plan:
    return load_plan(stack_name())


@pytest.fixture(scope="session")
def pipeline(plan: Plan) -> Pipeline:
    return Pipeline.of(plan)


@pytest.fixture(scope="session")
def insights(pipeline: Pipeline) -> Insights:
    return Insights(pipeline.api)


@pytest.fixture(scope="session")
def log(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The real log when it stands beside the project, else a generated one of about its size."""
    if REAL_LOG.exists():
        return REAL_LOG
    path = tmp_path_factory.mktemp("generated") / "access.log"
    seconds = timedelta(days=GENERATED_DAYS).total_seconds()
    end = GENERATED_END.timestamp()
    website = Website(seed=1)
    hits = website.hits(end - seconds, end, GENERATED_LINES / seconds, rhythm=True)
    path.write_bytes(b"".join(website.line(hit) + b"\n" for hit in hits))
    return path


@dataclass(frozen=True)
class Month:
    """A stretch of event time that no one else uses, and the log moved into it."""

    run: str
    shift_days: int
    truth: Recount

    @property
    def options(self) -> list[str]:
        shift = ["--shift", f"{self.shift_days}d"] if self.shift_days else []
        return ["--run", self.run, *shift]


@pytest.fixture(scope="session")
def month_of(plan: Plan, pipeline: Pipeline, log: Path) -> Callable[[int], Month]:
    """The log, so many months later."""
    session = uuid.uuid4().hex[:8]
    rule = PageViewRule.of(plan)

    def month(number: int) -> Month:
        days = number * MONTH_DAYS
        truth = recount(str(log), rule, pipeline.limits.line_bytes, shift_hours=24 * days)
        return Month(f"e2e-{session}-{number}", days, truth)

    return month


@pytest.fixture(scope="session")
def months(insights: Insights, month_of: Callable[[int], Month]) -> Iterator[Month]:
    """One month after the other, from the log's own on; on a used cluster, from its newest on."""
    newest = insights.job("traffic").get("max_event_time")
    used = used_months(month_of(0).truth.first, newest, timedelta(days=MONTH_DAYS))

    def month(number: int) -> Month:
        found = month_of(number)
        if found.truth.last > datetime.now(UTC):
            pytest.fail(
                f"the cluster has traffic up to {newest}: no month is left before today; these "
                "tests need a cluster that has not seen today's traffic"
            )
        return found

    return (month(number) for number in count(used))


@pytest.fixture
def month(months: Iterator[Month]) -> Month:
    return next(months)


@pytest.fixture(scope="session")
def began() -> datetime:
    """The minute before these tests: dead letters since then are theirs."""
    return datetime.now(UTC).replace(second=0, microsecond=0) - timedelta(minutes=1)


@pytest.fixture
def letters(insights: Insights, began: datetime) -> Callable[[], int]:
    """How many dead letters have come since the test began."""
    before = insights.dead_letters(began)
    return lambda: insights.dead_letters(began) - before


@pytest.fixture(scope="session", autouse=True)
def _jobs_of_local(plan: Plan) -> None:
    """What users have is at work: the jobs that `local` doesn't run would be in its way."""
    only_jobs_of_local(plan)


@pytest.fixture
def all_jobs(plan: Plan) -> Iterator[None]:
    """The jobs that `local` doesn't run are at work, too."""
    for job in extra_jobs(plan):
        millrace("jobs", "enable", job, "--within", "10m")
    yield
    only_jobs_of_local(plan)
