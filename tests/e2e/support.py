"""What the end-to-end tests share: the API as a client sees it, replays, and the comparison."""

import subprocess
import sys
from collections import defaultdict
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from millrace.cluster.insight_api import InsightApi
from millrace.plan import Plan, load_plan
from tests.recount import Counts, Recount
from tests.waiting import wait_until

HOUR = timedelta(hours=1)
DAY = timedelta(days=1)
GAP = timedelta(minutes=30)  # configs/jobs/sessions.yaml
MILLRACE = [sys.executable, "-m", "millrace.cli"]
TOP = 20
UNIQUE_ERROR = 0.02


class Insights:
    """The API as these tests ask it: times as datetimes, and ``from_`` for ``from``."""

    def __init__(self, api: InsightApi) -> None:
        self._api = api
        self.job = api.progress

    def get(self, path: str, **parameters: Any) -> dict[str, Any]:
        query = {name.rstrip("_"): _text(value) for name, value in parameters.items()}
        return self._api.get(path, **query)

    def dead_letters(self, since: datetime) -> int:
        return self.get("/v1/dead-letters", from_=since, to=since + DAY, limit=0)["count"]


def _text(value: Any) -> str:
    return value.isoformat() if isinstance(value, datetime) else str(value)


def used_months(first: datetime, newest: datetime | None, month: timedelta) -> int:
    """How many months of event time have events, when a log's begins at ``first``, and the cluster
    has seen some up to ``newest``. One event in the first one's hour uses it up as well."""
    begin = _hour(first)
    return 0 if newest is None or newest < begin else (newest - begin) // month + 1


def replay(log: Path, *options: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*MILLRACE, "replay", str(log), *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )


def finish(process: subprocess.Popen[str], seconds: float = 180) -> str:
    """The output of a replay that ends well."""
    output, _ = process.communicate(timeout=seconds)
    assert process.returncode == 0, output
    return output


def millrace(*arguments: str) -> str:
    """What a command of the toolkit prints that ends well."""
    done = subprocess.run([*MILLRACE, *arguments], capture_output=True, text=True)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def extra_jobs(plan: Plan) -> list[str]:
    """The jobs of this stack that `local` doesn't run."""
    return [job for job in plan.jobs if job not in load_plan("local").jobs]


def only_jobs_of_local(plan: Plan) -> None:
    """Disables the others; those that are disabled already stay so."""
    for job in extra_jobs(plan):
        millrace("jobs", "disable", job, "--within", "10m", "--yes")


def skip_unless_run(plan: Plan, job: str) -> None:
    if job not in plan.jobs:
        pytest.skip(f"no application of {plan.environment} runs {job}")


def assert_exact(insights: Insights, truth: Recount, seconds: float = 180) -> None:
    """Everything the API says about the log equals the recount, and stays so."""
    assert truth.first
    assert truth.last
    start = _hour(truth.first)
    end = _hour(truth.last) + HOUR

    def total_is_true() -> bool:
        total = insights.get("/v1/traffic/total", from_=start, to=end)
        assert _figures(total) == _truth(truth.total)
        return True

    wait_until(total_is_true, seconds, "totals equal the recount")
    # A duplicate would come late: let the jobs commit twice more before the last word.
    for _ in range(2):
        seen = insights.job("traffic")["updated"]
        wait_until(
            lambda seen=seen: insights.job("traffic")["updated"] > seen,
            seconds,
            "the traffic job commits again",
        )
    total_is_true()

    total = insights.get("/v1/traffic/total", from_=start, to=end)
    assert _close(total["unique_visitors"]["estimate"], len(truth.total.clients))
    _assert_windows(insights, "1h", truth.hours, start, end)
    _assert_windows(insights, "1m", truth.minutes, start, end)
    _assert_pages(insights, truth, start, end)
    wait_until(
        lambda: _assert_slots(insights, truth, start, end), seconds, "slots equal the recount"
    )
    wait_until(
        lambda: _assert_sessions(insights, truth, start, end), seconds, "sessions equal the recount"
    )
    assert insights.get("/v1/late", from_=start, to=end)["days"] == []


def _assert_windows(
    insights: Insights, size: str, truth: dict[datetime, Counts], start: datetime, end: datetime
) -> None:
    watermark = insights.job("traffic")["watermark"]
    seen: dict[datetime, Any] = {}
    while start < end:
        part_end = min(start + 2 * DAY, end)  # the most that is answered in minutes at a time
        windows = insights.get("/v1/traffic", from_=start, to=part_end, window=size)["windows"]
        seen |= {datetime.fromisoformat(window["start"]): window for window in windows}
        start = part_end
    assert {moment: _figures(window) for moment, window in seen.items()} == {
        moment: _truth(counts) for moment, counts in truth.items()
    }
    for moment, window in seen.items():
        assert _close(window["unique_visitors"]["estimate"], len(truth[moment].clients))
        assert window["version"] > 0
        assert window["final"] or datetime.fromisoformat(window["end"]) > watermark


def _assert_pages(insights: Insights, truth: Recount, start: datetime, end: datetime) -> None:
    top = insights.get("/v1/pages/top", from_=start, to=end, k=TOP)
    expected = sorted(truth.pages.items(), key=lambda page: (-page[1], page[0]))
    assert [(page["url"], page["page_views"]) for page in top["pages"]] == expected[:TOP]
    assert top["distinct_pages"] == len(expected)


def _assert_slots(insights: Insights, truth: Recount, start: datetime, end: datetime) -> bool:
    """A declared job, by its own route: each visitor's requests by half an hour."""
    found: dict[tuple[datetime, str], int] = {}
    while start < end:
        part_end = min(start + 6 * HOUR, end)
        answer = insights.get("/v1/jobs/sessions", from_=start, to=part_end, limit=1000)
        assert not answer["truncated"]
        for row in answer["rows"]:
            slot = datetime.fromisoformat(row["window_start"])
            found[slot, row["visitor_id"]] = row["events"]
        start = part_end
    assert found == truth.slots
    return True


def _assert_sessions(insights: Insights, truth: Recount, start: datetime, end: datetime) -> bool:
    """Its slots, merged: what closed in each minute, and what is open at the log's end."""
    closed: dict[datetime, tuple[int, int, float]] = {}
    while start < end:
        part_end = min(start + DAY, end)
        answer = insights.get("/v1/jobs/sessions/closed", from_=start, to=part_end)
        closed |= {
            datetime.fromisoformat(one["start"]): (one["closed"], one["bounced"], one["mean_pages"])
            for one in answer["minutes"]
        }
        start = part_end
    live = insights.get("/v1/jobs/sessions/live", limit=100)
    as_of = datetime.fromisoformat(live["as_of"])
    sessions = truth.sessions()
    expected: dict[datetime, list[int]] = defaultdict(list)
    for one in sessions:
        if one[-1] + GAP <= min(as_of, end - timedelta.resolution):
            expected[(one[-1] + GAP).replace(second=0)].append(len(one))
    assert closed == {
        minute: (len(pages), pages.count(1), pytest.approx(sum(pages) / len(pages)))
        for minute, pages in expected.items()
    }
    if as_of == truth.last:
        is_open = sorted((one[0], one[-1], len(one)) for one in sessions if as_of - one[-1] < GAP)
        assert live["open"] == len(is_open)
        if len(is_open) <= 100:
            shown = [
                (*(datetime.fromisoformat(one[name]) for name in ("start", "end")), one["events"])
                for one in live["sessions"]
            ]
            assert sorted(shown) == is_open
    return True


def _figures(answer: dict[str, Any]) -> dict[str, Any]:
    return {name: answer[name] for name in ("requests", "page_views", "bytes", "status")}


def _truth(counts: Counts) -> dict[str, Any]:
    return {
        "requests": counts.requests,
        "page_views": counts.page_views,
        "bytes": counts.bytes,
        "status": dict(counts.status),
    }


def _close(estimate: int, exact: int) -> bool:
    return abs(estimate - exact) <= max(1, UNIQUE_ERROR * exact)


def _hour(moment: datetime) -> datetime:
    return moment.replace(minute=0, second=0, microsecond=0)
