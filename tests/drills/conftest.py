"""What a drill that fails leaves to read: its cluster may be gone by then."""

import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient

from millrace.cluster import kafka
from millrace.common.paths import stack_name
from millrace.plan import Plan, load_plan
from tests.e2e.support import only_jobs_of_local

LINES = 80
LOGS = ("logs", "--since", "20m", "--service", "driver", "--service", "job_gateway")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Iterator[None]:
    report = yield
    if report.failed and report.when == "call":
        millrace = Path(sys.executable).parent / "millrace"
        told = subprocess.run([millrace, *LOGS], capture_output=True, text=True, check=False)
        last = "\n".join((told.stdout + told.stderr).splitlines()[-LINES:])
        report.sections.append(("Logs of drivers and gateways", last))
    return report


@pytest.fixture(scope="session", autouse=True)
def _jobs_of_local() -> None:
    """Drills run on what users have."""
    only_jobs_of_local(load_plan(stack_name()))


@pytest.fixture
def plan() -> Plan:
    return load_plan(stack_name())


@pytest.fixture
def admin(plan: Plan) -> AdminClient:
    return kafka.connect(plan)
