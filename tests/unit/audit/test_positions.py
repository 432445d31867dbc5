"""How far a job of several streams is, and whether it can be audited at all."""

from collections.abc import Callable
from concurrent.futures import Future
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import ListOffsetsResultInfo

from millrace.audit import declared
from millrace.audit.positions import Positions
from millrace.cluster import kafka
from millrace.common.errors import OperatorError
from millrace.plan import load_plan

PLAN = load_plan("local")
JOB = "attribution"
ENDS = {"ad-impressions": 100, "ad-clicks": 7}


def answer(value: Any) -> Future[Any]:
    future: Future[Any] = Future()
    future.set_result(value)
    return future


class Brokers:
    """Each partition ends at its topic's end."""

    def list_offsets(self, asked: Any, **_: Any) -> Any:
        return {p: answer(ListOffsetsResultInfo(ENDS[p.topic], -1, -1)) for p in asked}


@pytest.fixture
def commit(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """What the job's group has committed of each partition of a topic."""

    def commit(**read: int) -> None:
        committed = [
            TopicPartition(name.replace("_", "-"), partition, offset, "query 4")
            for name, offset in read.items()
            for partition in range(3)
        ]
        monkeypatch.setattr(kafka, "positions", lambda plan, job: committed)

    return commit


def test_lag_is_that_of_all_topics(commit: Callable[..., None]) -> None:
    def lag() -> int:
        return kafka.lag(Brokers(), PLAN, JOB)  # type: ignore[arg-type]

    commit(ad_impressions=90, ad_clicks=7)
    assert lag() == 3 * 10
    commit(ad_impressions=100)
    assert lag() == 3 * 7


@pytest.mark.parametrize(
    ("read", "batch", "is_there"),
    [
        ({"ad_impressions": 100, "ad_clicks": 7}, 4, True),
        ({"ad_impressions": 100, "ad_clicks": 7}, 3, False),  # its late events aren't counted
        ({"ad_impressions": 100, "ad_clicks": 6}, 4, False),
        ({"ad_impressions": 100}, 4, False),
    ],
)
def test_a_job_is_there_when_it_has_read_all_its_streams(
    commit: Callable[..., None], read: dict[str, int], batch: int, is_there: bool
) -> None:
    commit(**read)
    api: Any = SimpleNamespace(progress=lambda _: {"batch": batch})
    hdfs: Any = SimpleNamespace()
    positions = Positions(PLAN, hdfs, api)
    ends = {"impressions": np.full(3, 100), "clicks": np.full(3, 7)}
    assert positions._is_at(JOB, ends) is is_there


def test_a_job_whose_streams_nobody_archives_is_not_audited() -> None:
    with pytest.raises(OperatorError, match="runs archive_clicks and archive_impressions"):
        declared.require_archives(PLAN, JOB)
    jobs = ["archive_clicks", "archive_impressions", JOB]
    running = PLAN.model_copy(update={"applications": {"ads": jobs}})
    declared.require_archives(running, JOB)
