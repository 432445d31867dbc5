"""What Prometheus reads from a gateway, parsed by its own client."""

import json
import re
import threading
import urllib.error
import urllib.request
from concurrent.futures import Future
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any, ClassVar

import pytest
from confluent_kafka import OFFSET_INVALID, KafkaError, KafkaException, TopicPartition
from confluent_kafka.admin import OffsetSpec
from hypothesis import given
from hypothesis import strategies as st
from millrace_gateway import lag
from millrace_gateway.decide import Intent, Run, Submission
from millrace_gateway.lag import Lag, lag_of
from millrace_gateway.metrics import Application, Metrics, Snapshot, exposition, look, samples
from millrace_gateway.settings import Kafka
from millrace_gateway.yarn import Unreachable
from prometheus_client.parser import text_string_to_metric_families

from millrace.common.paths import REPO
from millrace_shared.driver_record import DriverRecord
from tests.waiting import PATIENCE_SECONDS

NOW = 10_000.0
SUBMITTED = Submission("v2", "edge-1", NOW - 900, NOW - 880, failures=1)


def driver(state: str, run: str, **more: Any) -> DriverRecord:
    return DriverRecord(**{"run": run, "host": "", "state": state, "since": NOW - 100} | more)


LEADER = driver(
    "leading",
    "application_1",
    jobs={"traffic": "running", "archive": "failed"},
    troubles={"archive": 'its "checkpoint" is gone\n'},
    failed_since={"archive": NOW - 50},
    runbooks={"archive": "checkpoint-lost"},
)
STANDBY = driver("standby", "application_2", since=NOW - 600, rehearsed_at=NOW - 30)
INSIGHTS = Application(
    "insights", Intent("running", "v2"), SUBMITTED, "running", [LEADER, STANDBY], 5
)


def parsed(text: str) -> dict[tuple[str, ...], float]:
    """(name, label's value, …) → value, as a scrape gets them."""
    return {
        (sample.name, *sample.labels.values()): sample.value
        for family in text_string_to_metric_families(text)
        for sample in family.samples
    }


def told(application: Application) -> dict[tuple[str, ...], float]:
    return parsed(exposition(samples(Snapshot(NOW, [application]))))


def test_who_drives_and_what_each_job_does() -> None:
    found = told(INSIGHTS)
    assert found["millrace_drivers", "insights", "leading"] == 1
    assert found["millrace_drivers", "insights", "standby"] == 1
    assert found["millrace_drivers", "insights", "warming"] == 0
    assert found["millrace_driver_leading_since_timestamp_seconds", "insights"] == NOW - 100
    assert found["millrace_driver_standby_since_timestamp_seconds", "insights"] == NOW - 600
    assert found["millrace_driver_rehearsed_timestamp_seconds", "insights"] == NOW - 30
    assert found["millrace_submission_started_timestamp_seconds", "insights"] == NOW - 900
    assert found["millrace_submission_failures", "insights"] == 1
    assert found["millrace_application_wanted", "insights"] == 1
    assert found["millrace_application_containers", "insights"] == 5
    assert found["millrace_application_info", "insights", "v2", "running"] == 1
    assert found["millrace_job_state", "insights", "archive", "failed"] == 1
    assert found["millrace_job_trouble", "insights", "archive"] == 1
    assert found["millrace_job_trouble", "insights", "traffic"] == 0
    failed = {key: since for key, since in found.items() if "failed_since" in key[0]}
    assert failed == {
        (
            "millrace_job_failed_since_timestamp_seconds",
            "insights",
            "archive",
            "checkpoint-lost",
        ): NOW - 50
    }


def test_nobody_drives_a_suspended_application() -> None:
    found = told(Application("insights", Intent("stopped", "v2"), None, "stopped", []))
    assert found["millrace_application_wanted", "insights"] == 0
    assert found["millrace_drivers", "insights", "leading"] == 0
    assert ("millrace_driver_leading_since_timestamp_seconds", "insights") not in found


def test_of_two_that_say_they_lead_the_newer_one_does() -> None:
    frozen = driver("leading", "application_0", since=NOW - 500)
    found = told(replace(INSIGHTS, drivers=[frozen, LEADER]))
    assert found["millrace_driver_leading_since_timestamp_seconds", "insights"] == NOW - 100
    assert found["millrace_drivers", "insights", "leading"] == 2


@given(st.text())
def test_any_text_is_a_label(text: str) -> None:
    found = exposition(iter([("millrace_application_info", {"phase": text}, 1)]))
    assert parsed(found) == {("millrace_application_info", text): 1}


class Registry:
    def applications(self) -> list[str]:
        return ["insights"]

    def intent(self, _: str) -> Intent:
        return Intent("running", "v2")

    def submission(self, _: str) -> None:
        return None

    def status(self, _: str) -> dict[str, str]:
        return {"phase": "running"}

    def drivers(self, _: str) -> list[DriverRecord]:
        return [LEADER]

    def epoch(self, job: str) -> int:
        return {"traffic": 7, "archive": 0}[job]


class Cluster:
    """YARN with two runs of the application, or without a ResourceManager that is active."""

    def __init__(self, away: bool = False) -> None:
        self.away = away

    def active(self, _: str) -> list[Run]:
        if self.away:
            raise Unreachable
        return [Run(f"application_{n}", "RUNNING", "v2", NOW, containers=n) for n in (2, 3)]


@pytest.mark.parametrize(("away", "containers"), [(False, 5), (True, None)])
def test_containers_are_counted_while_yarn_tells(
    tmp_path: Path, away: bool, containers: int | None
) -> None:
    seen = look(Registry(), Cluster(away), tmp_path, lambda jobs, _: {}, NOW)  # type: ignore[arg-type]
    (application,) = seen.applications
    assert application.containers == containers
    told = parsed(exposition(samples(seen)))
    assert (("millrace_application_containers", "insights") in told) is not away


def test_a_look_asks_for_the_jobs_of_the_version_that_is_to_run(tmp_path: Path) -> None:
    config = {
        "jobs": ["traffic", "archive"],
        "settings": {"traffic": {"lag_seconds": 30}, "archive": {"lag_seconds": 120}},
    }
    (tmp_path / "insights-v2").mkdir()
    (tmp_path / "insights-v2" / "insights.json").write_text(json.dumps(config))
    asked = {}

    def lags(jobs: dict[str, int], now: float) -> dict[str, Lag]:
        asked.update(jobs, now=now)
        return {"traffic": Lag(50, 5)}

    seen = look(Registry(), Cluster(), tmp_path, lags, NOW)  # type: ignore[arg-type]
    found = parsed(exposition(samples(seen)))
    assert asked == {"traffic": 30, "archive": 120, "now": NOW}
    assert found["millrace_job_epoch_given", "traffic"] == 7
    assert ("millrace_job_epoch_given", "archive") not in found
    assert found["millrace_job_lag_records", "traffic"] == 50
    assert found["millrace_job_overdue_records", "traffic"] == 5


def test_who_is_behind_is_told_from_one_look_to_the_next() -> None:
    metrics = Metrics()
    for number in range(5):
        lags = {"traffic": Lag(1000 - 100 * number, 5), "archive": Lag(5, 0)}
        metrics.take_in(Snapshot(NOW + 10 * number, lags=lags, jobs=["traffic", "archive"]))
    found = parsed(metrics.text())
    assert found["millrace_job_behind_since_timestamp_seconds", "traffic"] == NOW
    assert found["millrace_job_catch_up_seconds", "traffic"] == pytest.approx(60)
    assert ("millrace_job_behind_since_timestamp_seconds", "archive") not in found
    metrics.take_in(Snapshot(NOW + 60, lags={"traffic": Lag(2000, 5)}, jobs=["traffic"]))
    assert ("millrace_job_catch_up_seconds", "traffic") not in parsed(metrics.text())


def test_a_version_that_this_host_lacks_has_no_lag(tmp_path: Path) -> None:
    def none(jobs: dict[str, int], _: float) -> dict[str, Lag]:
        return dict.fromkeys(jobs, Lag(0, 0))

    seen = look(Registry(), Cluster(), tmp_path, none, NOW)  # type: ignore[arg-type]
    assert seen.lags == {}


@pytest.mark.parametrize(
    ("end", "read", "due", "expected"),
    [
        (100, 100, 90, Lag(0, 0)),
        (100, 60, 70, Lag(40, 10)),
        (100, 60, 60, Lag(40, 0)),
        (100, 60, 100, Lag(40, 40)),  # nothing came since
        (100, 80, 70, Lag(20, 0)),
        (100, 60, None, Lag(40, 0)),  # nobody looked as long ago
        (0, 5, 0, Lag(0, 0)),  # the topic was made anew
    ],
)
def test_lag_is_what_nobody_has_read(end: int, read: int, due: int | None, expected: Lag) -> None:
    key = ("events", 0)
    assert lag_of({key: end}, {key: read}, {} if due is None else {key: due}) == expected


def test_what_has_waited_is_known_by_earlier_looks() -> None:
    ends = lag.Ends()
    key = ("events", 0)
    for at, end in ((0, 10), (15, 20), (30, 30), (45, 40)):
        ends.look(NOW + at, {key: end})
    assert [ends.at(NOW + at).get(key) for at in (-1, 0, 14, 29, 100)] == [None, 10, 10, 20, 40]


def test_no_broker_is_asked_for_the_records_of_a_time() -> None:
    """It would read a whole compressed batch into its heap to answer."""
    programs = (REPO / "job-gateway", REPO / "millrace", REPO / "insight-api", REPO / "spark-jobs")
    asking = re.compile(
        r"for_timestamp|offsets_for_times|startingTimestamp|startingOffsetsByTimestamp"
    )
    found = {
        path.name
        for folder in programs
        for path in folder.rglob("*.py")
        if asking.search(path.read_text())
    }
    assert found == set()


def test_they_are_served_while_nothing_was_seen_yet_and_nothing_else_is() -> None:
    metrics = Metrics()
    metrics.acting = True
    with metrics.served(0) as port:
        with urllib.request.urlopen(
            f"http://127.0.0.1:{port}/metrics", timeout=PATIENCE_SECONDS
        ) as answer:
            text = answer.read().decode()
        with pytest.raises(urllib.error.HTTPError, match="404"):
            urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=PATIENCE_SECONDS)
    assert parsed(text) == {
        ("millrace_gateway_acting",): 1,
        ("millrace_gateway_looked_timestamp_seconds",): 0,
    }


def test_what_cant_be_seen_ends_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("millrace_gateway.metrics.LOOK_SECONDS", 0)
    metrics, has_gone_on = Metrics(), threading.Event()
    looks = iter([ValueError("no JSON"), Snapshot(NOW)])

    def take(_: float) -> Snapshot:
        seen = next(looks, None)
        if isinstance(seen, Exception):
            raise seen
        has_gone_on.set()
        return seen or Snapshot(NOW)

    metrics.keep_looking(take)
    assert has_gone_on.wait(PATIENCE_SECONDS)


EARLIEST = type(OffsetSpec.earliest())


@pytest.mark.parametrize(
    ("starts", "read", "left"),
    [
        ([0, 0, 0], 500, None),  # it forgets nothing
        ([0, 100, 300], 600, 20.0),  # 300 in 20 s, and 300 are left
        ([0, 100, 300], 250, -50.0),
        ([300], 250, -50.0),
        ([300], 350, None),  # how fast isn't known yet
    ],
)
def test_what_is_to_be_read_is_kept_for_so_long(
    starts: list[int], read: int, left: float | None
) -> None:
    beginnings = lag.Beginnings()
    for number, start in enumerate(starts):
        beginnings.look(NOW + 10 * number, {("events", 0): start, ("events", 1): 0})
    assert beginnings.expires_seconds({("events", 0): read, ("events", 1): 7}) == left


def test_how_fast_kafka_forgets_is_of_the_last_half_hour() -> None:
    beginnings = lag.Beginnings()
    for at, start in ((0, 0), (100, 10**6), (2000, 10**6), (2100, 10**6 + 100)):
        beginnings.look(NOW + at, {("events", 0): start})
    assert beginnings.expires_seconds({("events", 0): 10**6 + 200}) == 100.0


class Broker:
    """Of two topics and one of Kafka's own, each with two partitions of 100 records."""

    def list_topics(self, timeout: float) -> SimpleNamespace:
        topic = SimpleNamespace(partitions={0: None, 1: None})
        return SimpleNamespace(topics=dict.fromkeys(["clicks", "events", "__offsets"], topic))

    def list_offsets(self, asked: dict[TopicPartition, Any], **_: Any) -> dict[Any, Future[Any]]:
        [spec] = {type(spec) for spec in asked.values()}
        answer: Future[Any] = Future()
        answer.set_result(SimpleNamespace(offset=0 if spec is EARLIEST else 100))
        return dict.fromkeys(asked, answer)


class Group:
    """Has committed in `events` alone; a group named `lost` can't be asked."""

    made: ClassVar[list["Group"]] = []

    def __init__(self, settings: dict[str, Any], logger: Any) -> None:
        self.name, self.closed = settings["group.id"], False
        self.made.append(self)

    def committed(self, asked: list[TopicPartition], timeout: float) -> list[TopicPartition]:
        if self.name == "millrace-lost":
            raise KafkaException(KafkaError(KafkaError._TIMED_OUT))
        assert {p.topic for p in asked} == {"clicks", "events"}
        for position in asked:
            position.offset = 90 if position.topic == "events" else OFFSET_INVALID
        return asked

    def close(self) -> None:
        self.closed = True


def test_a_job_s_lag_is_asked_of_its_group(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lag, "AdminClient", lambda *_, **__: Broker())
    monkeypatch.setattr(lag, "Consumer", Group)
    lags = lag.Lags(Kafka(brokers="", group_prefix="millrace-"))
    assert lags.ask({"traffic": 30, "lost": 30}, NOW) == {"traffic": Lag(20, 0)}
    assert lags.ask({"traffic": 30}, NOW + 30) == {"traffic": Lag(20, 20)}
    assert [(group.name, group.closed) for group in Group.made] == [
        ("millrace-traffic", False),
        ("millrace-lost", True),
    ]


def test_without_brokers_no_lag_is_known_and_no_group_is_asked(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def nobody(timeout: float) -> None:
        raise KafkaException(KafkaError(KafkaError._TRANSPORT))

    monkeypatch.setattr(lag, "AdminClient", lambda *_, **__: SimpleNamespace(list_topics=nobody))
    monkeypatch.setattr(lag, "Consumer", None)
    lags = lag.Lags(Kafka(brokers="", group_prefix="millrace-"))
    assert lags.ask({"traffic": 30}, NOW) == {}
