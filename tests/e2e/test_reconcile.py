"""Half of a log comes too late, and one visitor has to go. Counted again beside 2,000 events a
second, while what counts and the driver are killed, the past is what other code counts of all."""

import json
import subprocess
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta
from pathlib import Path
from random import randrange
from typing import Any

import numpy as np
import pytest

from millrace.audit import topics
from millrace.audit.page_views import PageViewRule
from millrace.cluster import cassandra, kafka
from millrace.plan import Plan
from millrace.replay.pipeline import Pipeline
from tests.e2e.conftest import MONTH_DAYS, Month
from tests.e2e.support import (
    MILLRACE,
    Insights,
    _assert_pages,
    _assert_sessions,
    _assert_slots,
    _assert_windows,
    _figures,
    _hour,
    _truth,
    finish,
    millrace,
    replay,
)
from tests.e2e.test_exact import RECOVERY, assert_explained, docker, driver, is_healthy
from tests.e2e.test_malformed import event, produce
from tests.recount import Recount, recount
from tests.waiting import wait_until

HOUR = timedelta(hours=1)
DAYS_TO_CLOSE = timedelta(days=3)  # above every job's watermark
PATIENCE = 600.0
PAST_MONTHS = 100
LOAD = "10m"
JOBS = ("traffic", "sessions")


@dataclass(frozen=True)
class Halves:
    """A log in two, what other code counts of each, and of all without one visitor."""

    early: Path
    late: Path
    stream: Recount
    late_truth: Recount
    whole: Recount
    visitor: str
    span: tuple[datetime, datetime]

    @property
    def range(self) -> list[str]:
        start, end = self.span
        return ["--from", start.isoformat(), "--to", end.isoformat()]


@pytest.fixture
def month(months: Iterator[Month], month_of: Callable[[int], Month]) -> Month:
    """On a cluster that has seen today's traffic, one that comes too late as a whole."""
    try:
        return next(months)
    except pytest.fail.Exception:
        return month_of(-randrange(1, PAST_MONTHS))


@pytest.fixture
def halves(log: Path, month: Month, plan: Plan, pipeline: Pipeline, tmp_path: Path) -> Halves:
    lines = log.read_bytes().splitlines(keepends=True)
    addresses = [line.split(b" ", 1)[0] for line in lines]
    excluded = max(set(addresses), key=addresses.count)
    parts = {
        "early": lines[::2],
        "late": lines[1::2],
        "whole": [line for line, one in zip(lines, addresses, strict=True) if one != excluded],
        "excluded": [line for line, one in zip(lines, addresses, strict=True) if one == excluded],
    }
    rule, counted = PageViewRule.of(plan), {}
    for name, content in parts.items():
        (tmp_path / name).write_bytes(b"".join(content))
        path, limit = str(tmp_path / name), pipeline.limits.line_bytes
        counted[name] = recount(path, rule, limit, shift_hours=24 * month.shift_days)
    assert month.truth.first
    assert month.truth.last
    [visitor] = counted["excluded"].moments
    return Halves(
        tmp_path / "early",
        tmp_path / "late",
        counted["early"],
        counted["late"],
        counted["whole"],
        visitor,
        (_hour(month.truth.first), _hour(month.truth.last) + HOUR),
    )


@pytest.mark.extended
def test_the_past_is_counted_again_and_readers_change_over_at_once(
    plan: Plan, insights: Insights, month: Month, halves: Halves
) -> None:
    shift = month.options[2:]
    start, end = halves.span
    too_late = requests(halves.late_truth)
    is_in_time = is_open(insights, start)
    finish(replay(halves.early, "--run", f"{month.run}-early", "--late", *shift))
    if is_in_time:
        early = _truth(halves.stream.total)
        wait_until(lambda: totals(insights, halves) == early, PATIENCE, "half of it is counted")
    else:
        too_late += requests(halves.stream)
    produce(plan, [closing(end)])
    wait_until(lambda: all_closed(insights, end), PATIENCE, "all of its windows are closed")
    if is_in_time:
        assert_is(insights, halves.stream, halves.span)
    finish(replay(halves.late, "--run", f"{month.run}-late", "--late", *shift))
    wait_until(lambda: late(insights, halves) >= too_late, PATIENCE, "the rest came too late")
    before = totals(insights, halves)

    with load():
        numbers = {job: count(plan, job, halves) for job in JOBS}
        assert totals(insights, halves) == before  # nobody was switched
        shown = asked("reconcile", "traffic", "--show")
        assert shown["changed"] + shown["new"] > 0
        told_from = results_ends(plan)
        with watching(insights, halves) as seen:
            for job in JOBS:
                millrace("reconcile", job, "--switch", "--yes")
        after = requests(halves.whole)
        assert seen <= {before["requests"], after}
        assert_is(insights, halves.whole, halves.span)
        assert_told(plan, told_from, halves.whole)
        for job, number in numbers.items():
            for generation in (0, number):
                audit = asked("audit", "--job", job, *halves.range, "--generation", f"{generation}")
                assert audit["ok"], audit
                assert (audit["planes"][0]["excluded"] > 0) == (generation > 0)
            assert asked("audit", "--job", job, *halves.range)["ok"]
        assert_explained(halves.whole)

        millrace("reconcile", "traffic", "--back", "--yes")
        assert totals(insights, halves) == before
        millrace("reconcile", "traffic", "--switch", "--yes")
        assert_is(insights, halves.whole, halves.span)
    of_load = asked("audit", "--wait", "300s")
    found = {kind: of_load[kind] for kind in ("lost", "duplicated", "wrong")}
    assert found == {"lost": 0, "duplicated": 0, "wrong": 0}, of_load


def count(plan: Plan, job: str, halves: Halves) -> int:
    """Begun, killed on its host once it has noted something, and gone on with; of traffic the host
    of the driver that leads is killed meanwhile. Returns the generation."""
    command = ["reconcile", job, *halves.range, "--without", f"visitor_id = '{halves.visitor}'"]
    known = generations(plan)
    process = subprocess.Popen(
        [*MILLRACE, *command, "--json"],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        text=True,
    )
    wait_until(lambda: begun(plan, known) or process.poll() is not None, PATIENCE, "it has begun")
    victim = f"{plan.cluster}-{driver(plan)}" if job == "traffic" else None
    if victim:
        docker("kill", victim)
    try:
        for host in plan.hosts_of("job_gateway"):
            kill = ["sudo", "systemctl", "kill", "--signal=KILL", "recount"]
            subprocess.run([*MILLRACE, "on", host.name, "--", *kill], capture_output=True)
        output, _ = process.communicate(timeout=2 * PATIENCE)
        # The command itself may have gone on, on the other host.
        done = asked(*command) if process.returncode else json.loads(output)
    finally:
        if victim:
            docker("start", victim)
            wait_until(is_healthy, RECOVERY, "the cluster is healthy again", every=5)
    assert done["counted_to"] == done["to"] == done["open_to"]
    assert len(generations(plan)) == len(known) + 1, "it was begun anew"
    number: int = done["generation"]
    return number


def generations(plan: Plan) -> dict[tuple[str, int], dict[str, Any]]:
    """What each was counted of, and how far it is, by the table."""
    query = f"SELECT rows, generation, content FROM {plan.names.cassandra.keyspace}.generations"
    with cassandra.reading(plan) as session:
        return {
            (row.rows, row.generation): json.loads(row.content) for row in session.execute(query)
        }


def begun(plan: Plan, known: dict[tuple[str, int], dict[str, Any]]) -> bool:
    """Whether another one has noted a chunk."""
    new = {name: one for name, one in generations(plan).items() if name not in known}
    return any(one["done"] > one["start"] for one in new.values())


def closing(end: datetime) -> bytes:
    moment = (end + DAYS_TO_CLOSE).strftime("%Y-%m-%dT%H:%M:%S.000Z")
    return json.dumps(event(moment)).encode()


def is_open(insights: Insights, start: datetime) -> bool:
    """Whether the stream has counted what came: on a cluster that is farther, it was all late."""
    marks = [insights.job(job)["watermark"] or start for job in JOBS]
    return max(marks) < start + timedelta(days=MONTH_DAYS)


def all_closed(insights: Insights, end: datetime) -> bool:
    return min(insights.job(job)["watermark"] for job in JOBS) >= end + HOUR


def requests(truth: Recount) -> int:
    return truth.total.requests


def late(insights: Insights, halves: Halves) -> int:
    start, end = halves.span
    days = insights.get("/v1/late", from_=start, to=end)["days"]
    return sum(day["events"] for day in days if day["window"] == "1h")


def totals(insights: Insights, halves: Halves) -> dict[str, Any]:
    start, end = halves.span
    return _figures(insights.get("/v1/traffic/total", from_=start, to=end))


def assert_is(insights: Insights, truth: Recount, span: tuple[datetime, datetime]) -> None:
    """Everything that the API says of the range, row by row."""
    start, end = span
    total = insights.get("/v1/traffic/total", from_=start, to=end)
    assert _figures(total) == _truth(truth.total)
    _assert_windows(insights, "1h", truth.hours, start, end)
    _assert_windows(insights, "1m", truth.minutes, start, end)
    _assert_pages(insights, truth, start, end)
    _assert_slots(insights, truth, start, end)
    _assert_sessions(insights, truth, start, end)


@contextmanager
def load() -> Iterator[None]:
    """2,000 events a second meanwhile, to their end."""
    process = subprocess.Popen(
        [*MILLRACE, "load", "--rate", "2000", "--for", LOAD],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    yield
    finish(process, 2 * PATIENCE)


@contextmanager
def watching(insights: Insights, halves: Halves) -> Iterator[set[int]]:
    """Requests by windows, in each answer that a reader gets meanwhile."""
    start, end = halves.span
    seen: set[int] = set()
    ended: list[bool] = []

    def look() -> None:
        while not ended:
            answer = insights.get("/v1/traffic", from_=start, to=end, window="1h")
            seen.add(sum(window["requests"] for window in answer["windows"]))

    with ThreadPoolExecutor(1) as pool:
        looking = pool.submit(look)
        try:
            yield seen
        finally:
            ended.append(True)
            looking.result()


def results_ends(plan: Plan) -> np.ndarray:
    topic = plan.names.kafka.topics.results
    partitions = plan.topics[topic].partitions
    return np.array(kafka.require_ends(kafka.connect(plan), topic, partitions))


def assert_told(plan: Plan, starts: np.ndarray, truth: Recount) -> None:
    """The hours of the new generation in the results topic, up to the record that says complete."""
    topic = plan.names.kafka.topics.results
    found = [
        json.loads(record.value())
        for record in topics.read(plan, topic, starts, results_ends(plan))
    ]
    hours = [
        record
        for record in found
        if record.get("generation") and record.get("window") == "1h" and "requests" in record
    ]
    assert hours
    for record in hours:
        moment = datetime.fromisoformat(record["start"])
        expected = truth.hours[moment].requests if moment in truth.hours else 0
        assert record["requests"] == expected
    assert {one["job"] for one in found if one.get("complete")} == set(JOBS)


def asked(*command: str) -> dict[str, Any]:
    answer: dict[str, Any] = json.loads(millrace(*command, "--json"))
    return answer
