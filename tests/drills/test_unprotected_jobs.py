"""Negative controls: jobs without what protects their results, and audit and books say so.

`make test-all` runs them, last, because what they leave in Cassandra and the results topic is wrong
for good.
"""

import json
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest

from millrace.audit.report import Report
from millrace.audit.run import audit
from millrace.cli.service import Gateway, run_version
from millrace.cluster import books, prometheus
from millrace.cluster.ssh import run_on, ssh_command
from millrace.common.console import Console
from millrace.common.paths import REPO, stack_name
from millrace.drill import watch
from millrace.drill.display import Display
from millrace.drill.planes import Sampler
from millrace.hosts.roles import Holder, holder
from millrace.plan import Host, Plan, load_plan
from millrace.setup import jobs_package
from millrace.status import health
from tests.waiting import pause, wait_until

pytestmark = [pytest.mark.cluster, pytest.mark.spoils]

SABOTAGE = Path(__file__).parent / "sabotage"
DEPLOYMENTS = "/opt/millrace/spark-jobs"
RATE = 500
PATIENCE_SECONDS = 180
SOON = 0.05  # s: a driver is to be hit in the middle of a batch
ASK_SECONDS = 2.0
STREAM = "events"
AUDIT_SECONDS = 180
STAMPED_AHEAD_SECONDS = 120


@pytest.fixture(scope="module")
def plan() -> Plan:
    return load_plan(stack_name())


@pytest.fixture(scope="module", autouse=True)
def right_version(plan: Plan) -> Iterator[None]:
    """What ran before runs again afterwards."""
    gateway = Gateway(plan)
    (application,) = gateway.applications
    version = gateway.ask("versions", application)["intended"]["version"]
    yield
    pause(STAMPED_AHEAD_SECONDS, "what the unfenced driver wrote is younger than what comes next")
    run_version(plan, version, Console())


def sabotaged(plan: Plan, name: str, folder: Path) -> None:
    """The jobs that run, with a module that spoils them, are handed over to."""
    gateway = Gateway(plan)
    (application,) = gateway.applications
    right = gateway.ask("versions", application)["intended"]["version"]
    version = f"control-{name}-{time.time_ns()}"
    package = spoiled(name, folder)
    for host in plan.hosts_of("job_gateway"):
        old, new = (f"{DEPLOYMENTS}/{application}-{v}" for v in (right, version))
        done(run_on(plan, host, f"sudo cp -r {old} {new}"))
        config = json.loads(run_on(plan, host, f"cat {new}/{application}.json").stdout)
        put(plan, host, json.dumps(config | {"version": version}), f"{new}/{application}.json")
        put(plan, host, package.read_bytes(), f"{new}/millrace_jobs.zip")
    run_version(plan, version, Console())
    wait_until(lambda: not health.problems(plan), PATIENCE_SECONDS, "a standby of the same version")


def spoiled(name: str, folder: Path) -> Path:
    for package in (jobs_package.SHARED, jobs_package.JOBS, jobs_package.GATEWAY):
        shutil.copytree(REPO / package, folder / package)
    source = folder / jobs_package.JOBS
    shutil.copy(SABOTAGE / f"{name}.py", source / "sabotage.py")
    main = source / "main.py"
    text = main.read_text()
    assert text.count("import config\n") == 1
    main.write_text(text.replace("import config\n", "import config, sabotage\n"))
    # Of the version that runs: jobs that other tests have left there, disabled.
    return jobs_package.build(folder, folder, folders=[REPO / "tests" / "e2e" / "jobs"])[
        "jobs"
    ].path


def put(plan: Plan, host: Host, content: str | bytes, path: str) -> None:
    data = content.encode() if isinstance(content, str) else content
    command = [*ssh_command(plan, host), f"sudo tee {path} > /dev/null"]
    subprocess.run(command, input=data, check=True)


def done(process: subprocess.CompletedProcess[str]) -> None:
    assert process.returncode == 0, process.stderr


def wait_for_results(results: Sampler, batches: int = 1) -> None:
    seen = len(results.growths())
    wait_until(
        lambda: len(results.growths()) >= seen + batches, PATIENCE_SECONDS, "results flow", SOON
    )


def signalled(plan: Plan, driver: Holder, signal: str) -> None:
    done(run_on(plan, driver.host, f"sudo kill -{signal} {' '.join(map(str, driver.pids))}"))


def audited(plan: Plan, folder: Path, break_it: Callable[[Holder, Sampler], None]) -> Report:
    """A load during which the leading driver is broken, and what the audit finds."""
    load = watch.Loading(RATE, f"control-{time.time_ns()}", folder, "kafka")
    with (
        Display(Console(), "control") as show,
        watch.watching(plan, load, show) as seen,
    ):
        results = seen.samplers["read"]
        break_it(holder(plan, "driver"), results)
        wait_for_results(results, batches=3)
    return audit(plan, [seen.ledger], wait=AUDIT_SECONDS)


def findings(report: Report, plane: str) -> int:
    (found,) = (p for p in report.planes if p.name == plane)
    return found.wrong + found.duplicated


def test_increments_count_a_repeated_batch_twice(plan: Plan, tmp_path: Path) -> None:
    def kill_in_the_middle_of_a_batch(driver: Holder, results: Sampler) -> None:
        wait_for_results(results)  # the first writes are done, the batch is not
        signalled(plan, driver, "KILL")

    sabotaged(plan, "increments", tmp_path)
    report = audited(plan, tmp_path, kill_in_the_middle_of_a_batch)
    assert not report.ok
    assert findings(report, "Cassandra, windows") > 0


def test_a_driver_that_wakes_up_unfenced_spoils_the_results(plan: Plan, tmp_path: Path) -> None:
    def freeze_until_another_leads(driver: Holder, results: Sampler) -> None:
        wait_for_results(results)
        signalled(plan, driver, "STOP")
        # YARN gives a frozen driver up after a minute: it must wake up before that.
        wait_until(
            lambda: holder(plan, "driver").pids != driver.pids, PATIENCE_SECONDS, "another leads"
        )
        wait_for_results(results)
        signalled(plan, driver, "CONT")

    sabotaged(plan, "unfenced", tmp_path)
    report = audited(plan, tmp_path, freeze_until_another_leads)
    assert not report.ok
    assert findings(report, "results topic") > 0


def test_batches_that_are_never_archived_are_missing_in_the_books(
    plan: Plan, tmp_path: Path
) -> None:
    def wait_for_the_alert(_: Holder, results: Sampler) -> None:
        wait_for_results(results)
        wait_until(lambda: fires(plan, "LedgerDiffers"), PATIENCE_SECONDS, "the alert", ASK_SECONDS)

    began = datetime.now(UTC)
    sabotaged(plan, "unarchived", tmp_path)
    report = audited(plan, tmp_path, wait_for_the_alert)
    (archive,) = (found for found in report.planes if found.name.startswith("archive"))
    assert archive.lost > 0
    days = {began.date(), datetime.now(UTC).date()}
    entries = [entry for day in days for entry in books.entries(plan, [STREAM], day)]
    assert any(entry.difference > 0 for entry in entries if entry.committed > began)


def fires(plan: Plan, alert: str) -> bool:
    asked = f'ALERTS{{alertstate="firing",alertname="{alert}"}}'
    return bool(prometheus.query(plan, asked))
