"""Routes of declared jobs: made from what a job says of its rows."""

from collections.abc import Callable
from datetime import UTC, date, datetime
from typing import Any

import pytest
from fastapi.testclient import TestClient
from millrace_api.outputs import Output
from millrace_api.store import JobProgress, JobState
from millrace_jobs.output import Output as Written

from tests.api.fakes import FakeStore

WRITTEN = Written(
    job="by_status",
    table="job_by_status",
    summary="Requests by status.",
    window_seconds=60,
    slide_seconds=60,
    offset_seconds=0,
    join_seconds=None,
    key={"status": "int"},
    values={"requests": "bigint", "last": "timestamp"},
    approximate={},
    buckets=4,
    keep_seconds=86400,
    state=["Aggregate"],
)
RANGE = {"from": "2015-05-17T10:00:00Z", "to": "2015-05-17T11:00:00Z"}


def row(minute: int, status: int, requests: int = 1) -> dict[str, Any]:
    """As the job stores it."""
    start = datetime(2015, 5, 17, 10, minute)
    values = {"window_start": start, "status": status, "requests": requests, "last": start}
    stored = WRITTEN.row(values, version=5)
    return dict(zip(WRITTEN.columns, stored, strict=True))


@pytest.fixture(autouse=True)
def _job(store: FakeStore) -> None:
    store.described = [WRITTEN.to_json()]
    store.job_table = [row(2, 200, 7), row(1, 404), row(1, 200)]


def test_jobs_are_listed_with_their_columns(client: TestClient) -> None:
    [job] = client.get("/v1/jobs").json()["jobs"]
    assert job["rows"] == "/v1/jobs/by_status"
    assert job["key"] == {"status": "int"}
    assert (job["state"], job["failed_since"]) == (None, None)


def test_a_job_that_has_failed_is_listed_as_such(client: TestClient, store: FakeStore) -> None:
    now = datetime.now(UTC)
    store.doing = {"by_status": JobState("by_status", "failed", "why", now, "job-failed", now)}
    [job] = client.get("/v1/jobs").json()["jobs"]
    assert (job["state"], job["trouble"]) == ("failed", "why")
    assert job["runbook"] == "/runbooks/job-failed"


def test_rows_are_shown_with_their_windows(
    client: TestClient, store: FakeStore, progress: Callable[..., JobProgress]
) -> None:
    store.jobs = [progress("2015-05-17T10:02:00+00:00", datetime.now(UTC), "by_status")]
    answer = client.get("/v1/jobs/by_status", params=RANGE).json()
    assert [one["final"] for one in answer["rows"]] == [False, True, True]
    assert answer["rows"][0] == {
        "window_start": "2015-05-17T10:02:00Z",
        "window_end": "2015-05-17T10:03:00Z",
        "status": 200,
        "requests": 7,
        "last": "2015-05-17T10:02:00Z",
        "final": False,
        "version": 5,
    }


def test_a_row_written_after_the_watermark_was_read_is_not_final(
    client: TestClient, store: FakeStore, progress: Callable[..., JobProgress]
) -> None:
    late = progress("2015-05-17T10:30:00+00:00", datetime.now(UTC), "by_status")
    store.commits = [lambda store: setattr(store, "jobs", [late])]
    answer = client.get("/v1/jobs/by_status", params=RANGE).json()
    assert not any(one["final"] for one in answer["rows"])


def test_a_key_asks_for_its_rows_in_its_partition(client: TestClient) -> None:
    answer = client.get("/v1/jobs/by_status", params=RANGE | {"status": "404"}).json()
    assert [one["status"] for one in answer["rows"]] == [404]


def test_the_api_deals_keys_to_buckets_as_the_job_does() -> None:
    output = Output.model_validate_json(WRITTEN.to_json())
    for status in range(100, 600):
        start = datetime(2015, 5, 17)
        values = {"window_start": start, "status": status, "requests": 1, "last": start}
        assert WRITTEN.row(values, 1)[:2] == (date(2015, 5, 17), output.bucket([status]))


def test_more_rows_than_asked_for_are_told(client: TestClient) -> None:
    answer = client.get("/v1/jobs/by_status", params=RANGE | {"limit": 2}).json()
    assert (len(answer["rows"]), answer["truncated"]) == (2, True)


@pytest.mark.parametrize(
    ("path", "change", "status", "says"),
    [
        ("/v1/jobs/nobody", {}, 404, "/v1/jobs lists"),
        ("/v1/jobs/by_status", {"url": "/"}, 422, "no column of the key, which is status"),
        ("/v1/jobs/by_status", {"status": "two"}, 422, "no whole number"),
        ("/v1/jobs/by_status", {"to": "2015-06-17T10:00:00Z"}, 422, "at most"),
        ("/v1/jobs/by_status", {"to": "2015-05-17T09:00:00Z"}, 422, "later than"),
    ],
)
def test_what_cannot_be_answered_is_told(
    client: TestClient, path: str, change: dict[str, str], status: int, says: str
) -> None:
    answer = client.get(path, params=RANGE | change)
    assert answer.status_code == status
    assert says in answer.json()["detail"]


def test_each_job_has_its_path_in_the_openapi_document(client: TestClient) -> None:
    client.get("/v1/jobs")
    path = client.get("/openapi.json").json()["paths"]["/v1/jobs/by_status"]["get"]
    assert path["summary"] == "Requests by status."
    names = [parameter["name"] for parameter in path["parameters"]]
    assert names == ["from", "to", "limit", "cursor", "status"]
    schema = path["responses"]["200"]["content"]["application/json"]["schema"]
    row = schema["properties"]["rows"]["items"]
    assert row["required"] == [
        *("window_start", "window_end", "status", "requests", "last", "final", "version")
    ]
    assert row["properties"]["status"] == {"type": "integer"}
    [last, null] = row["properties"]["last"]["anyOf"]
    assert (last, null) == ({"type": "string", "format": "date-time"}, {"type": "null"})
