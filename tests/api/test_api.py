"""The HTTP interface over a store in memory."""

import re
from collections import Counter
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path
from urllib.parse import urlencode

import pytest
from fastapi.testclient import TestClient
from hypothesis import given, settings
from hypothesis import strategies as st
from millrace_api.ranges import Window
from millrace_api.store import (
    DeadLetter,
    JobProgress,
    JobState,
    LateEvents,
    StoreUnavailable,
    TrafficRow,
)

from tests.api.conftest import api_settings
from tests.api.fakes import FakeFeed, FakeStore
from tests.api.keys import BEARER, create_app

Row = Callable[..., TrafficRow]
MakeProgress = Callable[..., JobProgress]
DAY = {"from": "2015-05-17T00:00:00Z", "to": "2015-05-18T00:00:00Z"}
READS = ["/v1/traffic", "/v1/traffic/total", "/v1/pages/top", "/v1/dead-letters", "/v1/late"]


def test_windows_come_oldest_first_and_tell_final_from_provisional(
    client: TestClient, store: FakeStore, row: Row, progress: MakeProgress
) -> None:
    store.rows = [row(Window.HOUR, "11:00", "b"), row(Window.HOUR, "10:00", "a", "b", requests=5)]
    store.jobs = [progress("2015-05-17T11:59:59Z", datetime.now(UTC))]
    windows = client.get("/v1/traffic", params=DAY | {"window": "1h"}).json()["windows"]
    assert [(w["start"], w["requests"], w["final"]) for w in windows] == [
        ("2015-05-17T10:00:00Z", 5, True),
        ("2015-05-17T11:00:00Z", 1, False),
    ]
    assert windows[0]["unique_visitors"] == {"estimate": 2, "lower": 2, "upper": 2}
    assert windows[0]["version"] == (3 << 32) | 1000
    assert windows[0]["status"] == {"2xx": 5, "3xx": 0, "4xx": 0, "5xx": 0, "other": 0}


def test_another_jobs_watermark_makes_nothing_final(
    client: TestClient, store: FakeStore, row: Row, progress: MakeProgress
) -> None:
    store.rows = [row(Window.HOUR, "10:00")]
    store.jobs = [progress("2015-05-18T00:00:00Z", datetime.now(UTC), job="archive")]
    assert not client.get("/v1/traffic", params=DAY).json()["windows"][0]["final"]


@pytest.mark.parametrize("read", [0, 1])
@pytest.mark.parametrize("path", ["/v1/traffic", "/v1/traffic/total"])
def test_a_row_from_before_a_commit_is_never_final_by_the_watermark_from_after_it(
    client: TestClient, store: FakeStore, row: Row, progress: MakeProgress, path: str, read: int
) -> None:
    def commit(store: FakeStore) -> None:
        store.rows = [row(Window.HOUR, "10:00", requests=2)]
        store.jobs = [progress("2015-05-18T00:00:00Z", datetime.now(UTC))]

    store.rows = [row(Window.HOUR, "10:00", requests=1)]
    store.jobs = [progress("2015-05-17T10:30:00Z", datetime.now(UTC))]
    # The batch ends after the first or the second read of the request.
    store.commits = [*[lambda _: None] * read, commit]
    answer = client.get(path, params=DAY).json()
    (counts,) = answer.get("windows", [answer])
    assert counts["requests"] == 2 or not counts["final"]
    after = client.get(path, params=DAY | {"to": "2015-05-17T11:00:00Z"}).json()
    (counts,) = after.get("windows", [after])
    assert (counts["requests"], counts["final"]) == (2, True)


def test_a_total_takes_hours_where_it_can_and_counts_each_visitor_once(
    client: TestClient, store: FakeStore, row: Row
) -> None:
    store.rows = [
        row(Window.MINUTE, "09:58", "a"),
        row(Window.MINUTE, "09:57", "outside", requests=1000),
        row(Window.HOUR, "10:00", "a", "b", requests=10),
        row(Window.MINUTE, "10:30", "b", requests=10),  # is part of the hour
        row(Window.MINUTE, "11:00", "c", requests=100),
        row(Window.HOUR, "11:00", "c", requests=100),  # is not whole in the range
    ]
    total = client.get(
        "/v1/traffic/total", params={"from": "2015-05-17T09:58:00Z", "to": "2015-05-17T11:01:00Z"}
    ).json()
    assert total["requests"] == 1 + 10 + 100
    assert total["unique_visitors"]["estimate"] == 3
    assert total["version"] == (3 << 32) | 1100
    assert total["final"] is False


def test_an_empty_range_is_zero_not_an_error(client: TestClient) -> None:
    total = client.get("/v1/traffic/total", params=DAY).json()
    assert (total["requests"], total["unique_visitors"]["estimate"]) == (0, 0)
    assert client.get("/v1/traffic", params=DAY).json()["windows"] == []
    assert client.get("/v1/extent").json() == {"1m": None, "1h": None}


def test_top_pages_are_summed_over_hours_and_ranked(client: TestClient, store: FakeStore) -> None:
    ten = datetime(2015, 5, 17, 10, tzinfo=UTC)
    store.pages = {
        ten: Counter({"/b": 2, "/a": 2, "/c": 1}),
        ten + timedelta(hours=1): Counter({"/c": 4}),
        ten + timedelta(days=1): Counter({"/outside": 99}),
    }
    top = client.get("/v1/pages/top", params=DAY | {"k": 2}).json()
    assert top["pages"] == [{"url": "/c", "page_views": 5}, {"url": "/a", "page_views": 2}]
    assert (top["distinct_pages"], top["error"], top["other_page_views"]) == (3, 0, 0)
    store.lists = {ten: (7, 100), ten + timedelta(hours=1): (1, 20)}
    top = client.get("/v1/pages/top", params=DAY).json()
    assert (top["error"], top["other_page_views"]) == (2 * (7 + 1), 120)


def test_dead_letters_are_all_counted_but_few_are_listed(
    client: TestClient, store: FakeStore
) -> None:
    noon = datetime(2015, 5, 17, 12, tzinfo=UTC)
    store.letters = [DeadLetter(f"events-0-{i}", "not JSON", 9, "{", noon) for i in range(5)]
    store.letter_counts = {"not JSON": 1_000_000, "no value": 2}
    answer = client.get("/v1/dead-letters", params=DAY | {"limit": 2}).json()
    assert answer["count"] == 1_000_002
    assert answer["reasons"] == {"not JSON": 1_000_000, "no value": 2}
    assert [letter["id"] for letter in answer["dead_letters"]] == ["events-0-4", "events-0-3"]


@settings(max_examples=25)
@given(st.lists(st.integers(0, 59), max_size=12), st.integers(1, 5))
def test_pages_of_dead_letters_are_all_samples_each_once(
    panels: Path, minutes: list[int], limit: int
) -> None:
    noon = datetime(2015, 5, 17, 12, tzinfo=UTC)
    letters = [
        DeadLetter(f"events-0-{n}", "not JSON", 9, "{", noon + timedelta(minutes=minute))
        for n, minute in enumerate(minutes)
    ]
    store = FakeStore(letters=letters)
    with TestClient(create_app(api_settings(panels), store, FakeFeed()), headers=BEARER) as client:
        seen: list[str] = []
        url: str | None = f"/v1/dead-letters?{urlencode(DAY)}&limit={limit}"
        while url:
            answer = client.get(url)
            seen += [letter["id"] for letter in answer.json()["dead_letters"]]
            link = answer.links.get("next")
            url = link and str(answer.url.join(link["url"]))
    latest_first = sorted(letters, key=lambda letter: letter.place, reverse=True)
    assert seen == [letter.id for letter in latest_first]


def test_late_events_by_day_and_window(client: TestClient, store: FakeStore) -> None:
    store.late = [LateEvents(datetime(2015, 5, 17).date(), "1m", 3)]
    days = client.get("/v1/late", params=DAY).json()["days"]
    assert days == [{"day": "2015-05-17", "window": "1m", "events": 3}]


@pytest.mark.parametrize(
    ("path", "days", "remedy"),
    [
        ("/v1/pages/top", 7, "2015-05-24T00:00:00Z"),
        ("/v1/dead-letters", 2, "2015-05-19T00:00:00Z"),
        ("/v1/traffic/total", 366, "2016-05-17T00:00:00Z"),
    ],
)
def test_a_range_that_is_too_long_is_told_what_to_ask_instead(
    client: TestClient, path: str, days: int, remedy: str
) -> None:
    start = datetime(2015, 5, 17, tzinfo=UTC)
    for length, status in ((days, 200), (days + 1, 422)):
        end = start + timedelta(days=length)
        answer = client.get(path, params={"from": start.isoformat(), "to": end.isoformat()})
        assert answer.status_code == status
    assert remedy in answer.json()["detail"]


def test_the_extent_says_where_there_is_data(
    client: TestClient, store: FakeStore, row: Row
) -> None:
    store.rows = [row(Window.HOUR, "10:00"), row(Window.HOUR, "13:00")]
    assert client.get("/v1/extent").json() == {
        "1m": None,
        "1h": {"from": "2015-05-17T10:00:00Z", "to": "2015-05-17T14:00:00Z"},
    }


@pytest.mark.parametrize(
    ("path", "parameters", "parameter"),
    [
        ("/v1/traffic", {"from": "2015-05-17T00:00:00"}, "from"),
        ("/v1/traffic", {"window": "5m"}, "window"),
        ("/v1/traffic", {"window": "1m", "to": "2015-05-20T00:00:00Z"}, "to"),
        ("/v1/traffic/total", {"from": "2015-05-17T00:00:30Z"}, "from"),
        ("/v1/pages/top", {"k": "101"}, "k"),
        ("/v1/pages/top", {"k": "many"}, "k"),
        ("/v1/pages/top", {"from": "2015-05-17T00:01:00Z"}, "from"),
        ("/v1/dead-letters", {"to": "2015-01-01T00:00:00Z"}, "to"),
    ],
)
def test_a_bad_parameter_is_named(
    client: TestClient, path: str, parameters: dict[str, str], parameter: str
) -> None:
    answer = client.get(path, params=DAY | parameters)
    assert answer.status_code == 422
    assert answer.headers["content-type"] == "application/problem+json"
    assert answer.json()["parameter"] == parameter
    assert parameter in answer.json()["detail"]


def test_a_missing_parameter_is_named(client: TestClient) -> None:
    assert client.get("/v1/traffic?from=2015-05-17T00:00:00Z").json()["parameter"] == "to"


@pytest.mark.parametrize("path", [*READS, "/v1/extent", "/v1/progress"])
def test_without_the_store_the_answer_is_503_and_says_when_to_retry(
    client: TestClient, store: FakeStore, path: str
) -> None:
    store.away = True
    asked = DAY if path in READS else {}
    answer = client.get(path, params=asked)
    assert answer.status_code == 503
    assert int(answer.headers["retry-after"]) > 0
    assert answer.json()["title"] == "Store unavailable"
    assert "secret" not in answer.text
    store.away = False
    assert client.get(path, params=asked).status_code == 200


def test_health_does_not_depend_on_the_store(client: TestClient, store: FakeStore) -> None:
    store.away = True
    assert client.get("/healthz").status_code == 200


def test_status_shows_each_plane(
    client: TestClient, store: FakeStore, feed: FakeFeed, progress: MakeProgress
) -> None:
    now = datetime.now(UTC)
    store.jobs = [progress(None, now), progress(None, now - timedelta(minutes=5), job="archive")]
    planes = {plane["name"]: plane for plane in client.get("/v1/status").json()["planes"]}
    assert planes["ingest"]["state"] == "down"
    assert planes["process"]["state"] == "degraded"
    assert "archive" in planes["process"]["detail"]
    assert planes["store"]["detail"] == "quorum, 2 of 3 nodes up"
    assert planes["cache"]["state"] == "up"


def test_status_answers_when_everything_is_away(
    client: TestClient, store: FakeStore, feed: FakeFeed
) -> None:
    store.away = feed.away = True
    answer = client.get("/v1/status")
    assert answer.status_code == 200
    assert {plane["state"] for plane in answer.json()["planes"]} == {"down"}


def test_the_page_and_its_parts_come_from_here_alone(client: TestClient) -> None:
    page = client.get("/").text
    for part in ("/page/page.css", "/page/page.js", "/page/chart.js"):
        assert client.get(part).status_code == 200
    assert "://" not in page.replace("http://www.w3.org/2000/svg", "")


def test_the_documentation_needs_no_internet(client: TestClient) -> None:
    page = client.get("/docs").text
    parts = re.findall(r"""(?:src|href)=["']([^"']+)""", page)
    assert parts
    for part in parts:
        assert client.get(part).status_code == 200, part
    assert "://" not in page


def test_every_route_is_described(client: TestClient) -> None:
    paths = client.get("/openapi.json").json()["paths"]
    assert set(READS) < set(paths)
    for path, operations in paths.items():
        assert operations["get"]["description"], path


def test_one_client_too_many_is_told_to_come_back(client: TestClient) -> None:
    hub = client.app.state.hub
    with hub.viewer("one"), hub.viewer("two"):  # as many as the settings allow
        answer = client.get("/v1/stream")
    assert answer.status_code == 503
    assert "retry-after" in answer.headers


def test_one_address_does_not_take_all_streams(client: TestClient) -> None:
    with client.app.state.hub.viewer("testclient"):
        answer = client.get("/v1/stream")
    assert answer.status_code == 429
    assert "retry-after" in answer.headers


# -- What jobs do


def told(now: datetime, ago: timedelta = timedelta(seconds=5)) -> JobState:
    return JobState("traffic", "failed", "why", now - timedelta(hours=1), "job-failed", now - ago)


def test_a_job_that_has_failed_says_why_since_when_and_what_to_do(
    client: TestClient, store: FakeStore, progress: MakeProgress
) -> None:
    now = datetime.now(UTC)
    store.jobs = [progress(None, now), progress(None, now, job="archive")]
    store.doing = {"traffic": told(now)}
    [failed, silent] = client.get("/v1/progress").json()["jobs"]
    assert (failed["state"], failed["trouble"]) == ("failed", "why")
    assert datetime.fromisoformat(failed["failed_since"]) == now - timedelta(hours=1)
    assert failed["runbook"] == "/runbooks/job-failed"
    keys = ("state", "trouble", "failed_since", "runbook")
    assert [silent[key] for key in keys] == [None] * 4


def test_what_a_driver_said_a_minute_ago_is_nobody_s_word(
    client: TestClient, store: FakeStore, progress: MakeProgress
) -> None:
    now = datetime.now(UTC)
    store.jobs = [progress(None, now)]
    store.doing = {"traffic": told(now, timedelta(minutes=2))}
    [job] = client.get("/v1/progress").json()["jobs"]
    assert (job["state"], job["failed_since"]) == (None, None)


def test_before_the_jobs_were_deployed_that_tell_their_states_progress_is_told(
    client: TestClient, store: FakeStore, progress: MakeProgress, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def no_table() -> None:
        raise StoreUnavailable("the schema is not there yet")

    monkeypatch.setattr(store, "states", no_table)
    store.jobs = [progress(None, datetime.now(UTC))]
    [job] = client.get("/v1/progress").json()["jobs"]
    assert job["state"] is None
