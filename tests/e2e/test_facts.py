"""Facts that change while the driver is killed: every stored row has those of one version."""

import json
import subprocess
import sys
import threading
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from millrace.audit.declared import audit_job
from millrace.cluster.tables import LookupVersions, lookup_versions
from millrace.plan import Plan
from millrace.table_versions import change, with_row, without_key
from tests.e2e.support import MILLRACE, Insights, finish, skip_unless_run
from tests.waiting import pause, wait_until

JOB, TABLE, CAMPAIGN = "attribution", "campaigns", "spring"
SECONDS = 40
KILL = """
HOST=$({m} who driver) && PIDS=$({m} who driver --pids) && {m} on "$HOST" -- kill -KILL $PIDS
"""


@pytest.fixture
def versions(plan: Plan) -> Iterator[LookupVersions]:
    skip_unless_run(plan, JOB)
    table = plan.tables[TABLE]
    with lookup_versions(plan) as found:
        yield found
        change(found, TABLE, table, without_key(table, {"campaign": CAMPAIGN}))


@pytest.mark.extended
@pytest.mark.usefixtures("all_jobs")
def test_a_batch_that_runs_again_keeps_its_facts(
    plan: Plan, insights: Insights, versions: LookupVersions
) -> None:
    began = datetime.now(UTC).replace(second=0, microsecond=0)
    table, over = plan.tables[TABLE], threading.Event()

    def put_again_and_again() -> None:
        for number in range(10**6):
            row = {"campaign": CAMPAIGN, "name": f"Spring {number}", "advertiser": "Acme"}
            change(versions, TABLE, table, with_row(table, row | {"cost_per_click": number % 1000}))
            if over.wait(0.5):
                return

    operator = threading.Thread(target=put_again_and_again)
    operator.start()
    try:
        advertising = subprocess.Popen(
            [*MILLRACE, "advertise", "--rate", "50", "--for", f"{SECONDS}s", "--json"],
            stdout=subprocess.PIPE,
            text=True,
        )
        pause(SECONDS / 2, "facts change, and clicks come")
        subprocess.run(
            ["bash", "-c", KILL.format(m=f"{sys.executable} -m millrace.cli")], check=True
        )
        sent = json.loads(finish(advertising))
    finally:
        over.set()
        operator.join()

    assert audit_job(plan, JOB, None, None, 180).ok
    rows = wait_until(lambda: stored(insights, began), 60, "rows of the campaign")
    assert sum(row["clicks"] for row in rows) >= sent["campaigns"][CAMPAIGN]["clicks"]
    for row in rows:
        seen = versions.at(TABLE, row[f"{TABLE}_version"]).rows
        [fact] = [one for one in seen if one["campaign"] == CAMPAIGN]
        assert {name: row[name] for name in fact} == fact


def stored(insights: Insights, since: datetime) -> list[dict[str, Any]]:
    until = since + timedelta(hours=1)
    answer = insights.get(f"/v1/jobs/{JOB}", from_=since, to=until, campaign=CAMPAIGN, limit=1000)
    return answer["rows"]
