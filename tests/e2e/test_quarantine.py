"""A job goes on without the records by which its own code fails, and no other job notices."""

import json
from datetime import UTC, datetime

import pytest

from millrace.plan import Plan
from tests.e2e.support import Insights, millrace, skip_unless_run
from tests.e2e.test_malformed import event, produce
from tests.waiting import wait_until

JOB = "divisions"
POISON = 599  # the status by which it divides by zero
PATIENCE_SECONDS = 180


@pytest.mark.extended
@pytest.mark.usefixtures("all_jobs")
def test_a_job_goes_on_without_what_it_fails_by(plan: Plan, insights: Insights) -> None:
    skip_unless_run(plan, JOB)
    leaders = leading()
    moment = datetime.now(UTC).strftime("%Y-%m-%dT%H:%M:%S.000Z")
    values = [event(moment, status=POISON if n % 100 == 50 else 200) for n in range(300)]
    places = produce(plan, [json.dumps(one).encode() for one in values])
    poisonous = {
        place for place, one in zip(places, values, strict=True) if one["status"] == POISON
    }

    def are_left_out() -> bool:
        listed = millrace("dead-letters", "list", "--job", JOB)
        return all(place in listed for place in poisonous)

    wait_until(are_left_out, PATIENCE_SECONDS, f"{len(poisonous)} records are put aside")
    shown = millrace("dead-letters", "show", min(poisonous))
    assert f"left out by {JOB}" in shown
    assert "DIVIDE_BY_ZERO" in shown
    assert f'"status": {POISON}' in shown

    sent = datetime.now(UTC)
    produce(plan, [json.dumps(event(moment)).encode()])
    wait_until(lambda: insights.job(JOB)["updated"] > sent, PATIENCE_SECONDS, "the job goes on")
    audit = json.loads(millrace("audit", "--job", JOB, "--wait", "180s", "--json"))
    recounted, by_another_engine = audit["planes"]
    assert recounted["checked"] > 0
    assert "by DuckDB" in by_another_engine["name"]
    assert by_another_engine["checked"] > 0
    assert leading() == leaders, "a driver has ended"


def leading() -> str:
    return millrace("who", "driver").strip()
