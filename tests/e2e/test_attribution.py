"""Impressions and clicks go through the job `attribution`, where an application runs it."""

import json
from collections import Counter
from typing import Any

import pytest

from millrace.plan import Plan
from tests.e2e.support import Insights, millrace, skip_unless_run
from tests.waiting import wait_until

JOB = "attribution"


@pytest.mark.extended
@pytest.mark.usefixtures("all_jobs")
def test_every_figure_of_what_was_advertised_is_exact(plan: Plan, insights: Insights) -> None:
    skip_unless_run(plan, JOB)
    sent = json.loads(millrace("advertise", "--rate", "100", "--for", "40s", "--json"))
    # Of one campaign there may be none by chance: a dozen strays are dealt to four of them.
    assert sum(figures["unmatched"] for figures in sent["campaigns"].values()) > 0

    def is_exact() -> bool:
        assert found(insights, sent) == sent["campaigns"]
        return True

    wait_until(is_exact, 180, "each campaign's figures are what was sent")
    millrace("audit", "--job", JOB, "--wait", "180s")


def found(insights: Insights, sent: dict[str, Any]) -> dict[str, dict[str, int]]:
    """Sums over the minutes in which it was sent, by campaign."""
    rows = insights.get(f"/v1/jobs/{JOB}", from_=sent["from"], to=sent["to"], limit=1000)["rows"]
    sums: dict[str, Counter[str]] = {}
    for row in rows:
        sums.setdefault(row["campaign"], Counter()).update(
            {name: row[name] for name in sent["campaigns"][row["campaign"]]}
        )
    return {campaign: dict(figures) for campaign, figures in sums.items()}
