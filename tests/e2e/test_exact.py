"""A log goes through the whole pipeline, and the API's figures are exactly those of the log."""

import json
import re
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from millrace.cluster import kafka
from millrace.cluster.zookeeper import drivers
from millrace.plan import Plan
from millrace_shared.driver_record import leader
from tests.e2e.conftest import REAL_LOG, Month
from tests.e2e.support import MILLRACE, Insights, assert_exact, finish, millrace, replay
from tests.recount import Recount
from tests.waiting import wait_until

FAULT_AFTER = 2000  # lines of ten thousand
RECOVERY = 300.0


def assert_dead_letters(letters: Callable[[], int], expected: int) -> None:
    wait_until(lambda: letters() >= expected, 120, f"{expected} dead letters")
    assert letters() == expected


def test_every_figure_of_a_replayed_log_is_exact(
    insights: Insights, log: Path, month: Month, letters: Callable[[], int]
) -> None:
    if log == REAL_LOG:
        counts = month.truth.total
        assert (counts.requests, len(counts.clients), month.truth.malformed) == (9999, 1753, 1)
    finish(replay(log, *month.options))
    assert_exact(insights, month.truth)
    assert_dead_letters(letters, month.truth.malformed)
    assert_explained(month.truth)
    assert_books_are_even(month)


def assert_explained(truth: Recount) -> None:
    """The events of the busiest hour are as many as the log has."""
    hour, counts = max(truth.hours.items(), key=lambda one: one[1].requests)
    why = json.loads(millrace("why", "traffic", "window=1h", f"{hour:%FT%RZ}", "--json"))
    assert why["adds_up"]
    assert why["count"] == counts.requests


def assert_books_are_even(month: Month) -> None:
    """The replay's transactions have offsets that are no records."""

    def all_are_entered() -> bool:
        return ledger()["archived"] >= month.truth.total.requests

    wait_until(all_are_entered, RECOVERY, "the books have all lines", every=2)
    assert ledger()["difference"] == 0


def ledger() -> dict[str, int]:
    told: dict[str, int] = json.loads(millrace("ledger", "--json"))["spans_total"]
    return told


@pytest.mark.extended
def test_a_replay_that_was_killed_twice_is_exact(
    plan: Plan, insights: Insights, log: Path, month: Month, letters: Callable[[], int]
) -> None:
    for _ in range(2):
        process = replay_in_the_middle(plan, log, month)
        assert process.poll() is None, "the replay ended before it could be killed"
        process.kill()
        process.wait()
    output = finish(replay(log, *month.options))
    resumed = re.search(r"going on after line ([\d,]+)", output)
    assert resumed, output
    assert 0 < int(resumed[1].replace(",", "")) < month.truth.total.requests
    assert "already replayed" in finish(replay(log, *month.options))
    assert_exact(insights, month.truth)
    assert_dead_letters(letters, month.truth.malformed)


def replay_in_the_middle(plan: Plan, log: Path, month: Month) -> subprocess.Popen[str]:
    """One that has committed some of its log, and goes on."""
    admin, topic = kafka.connect(plan), plan.names.kafka.topics.events

    def sent() -> int:
        return sum(kafka.topic_ends(admin, topic, plan.topics[topic].partitions))

    before = sent()
    process = replay(log, *month.options)
    wait_until(lambda: sent() - before > FAULT_AFTER, RECOVERY, "some lines are sent", every=0.2)
    return process


def broker(plan: Plan) -> str:
    return plan.hosts_of("kafka_broker")[0].name


def driver(plan: Plan) -> str:
    """The worker of the driver that leads."""
    [pair] = drivers(plan).values()
    found = leader(pair)
    assert found, "nobody leads"
    return found.host


@pytest.mark.extended
@pytest.mark.parametrize("victim", [broker, driver])
def test_a_replay_is_exact_when_a_host_dies(
    plan: Plan,
    insights: Insights,
    log: Path,
    month: Month,
    letters: Callable[[], int],
    victim: Callable[[Plan], str],
) -> None:
    """Two hosts that carry the stream itself; the drills take every other one."""
    container = f"{plan.cluster}-{victim(plan)}"
    process = replay_in_the_middle(plan, log, month)
    docker("kill", container)
    try:
        finish(process, RECOVERY)
        assert_exact(insights, month.truth, RECOVERY)
        assert_dead_letters(letters, month.truth.malformed)
    finally:
        docker("start", container)
        wait_until(is_healthy, RECOVERY, f"the cluster is healthy with {container} back", every=5)


def docker(*arguments: str) -> None:
    subprocess.run(["docker", *arguments], check=True, capture_output=True)


def is_healthy() -> bool:
    return subprocess.run([*MILLRACE, "status", "--json"], capture_output=True).returncode == 0
