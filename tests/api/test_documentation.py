"""The OpenAPI document: made once, and good enough for a client that a generator makes of it."""

import importlib
import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from types import ModuleType
from typing import Any

import httpx
import pytest
from fastapi.testclient import TestClient
from millrace_api import documentation
from millrace_api import runbooks as runbook_pages
from millrace_api.access import COOKIE

from tests.api.conftest import api_settings
from tests.api.fakes import FakeFeed, FakeStore
from tests.api.keys import ALL, create_app, secret_of
from tests.api.serving import at_loopback, busy_store, describe_jobs
from tests.api.test_operations import StandIn
from tests.api.test_operations import served as prometheus
from tests.generated import generated_client
from tests.waiting import PATIENCE_SECONDS

KEY = secret_of(ALL)
TEN, ELEVEN = (datetime(2015, 5, 17, hour, tzinfo=UTC) for hour in (10, 11))


# --- once ----------------------------------------------------------------------------------------


def test_the_document_is_made_once_for_what_the_jobs_say(
    client: TestClient, store: FakeStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[list[str]] = []
    make = documentation.document

    def counted(app: Any, outputs: Any) -> dict[str, Any]:
        made.append([*outputs.usable])
        return make(app, outputs)

    monkeypatch.setattr(documentation, "document", counted)
    for _ in range(5):
        assert client.get("/openapi.json").status_code == 200
    store.described = busy_store().described
    client.get("/v1/jobs")
    for _ in range(5):
        paths = client.get("/openapi.json").json()["paths"]
        client.get("/v1/jobs")
    assert "/v1/jobs/visits/live" in paths
    assert made == [[], ["by_status", "visits"]]


def test_a_runbook_is_rendered_once(client: TestClient, monkeypatch: pytest.MonkeyPatch) -> None:
    rendered: list[int] = []
    render = runbook_pages.page
    runbook_pages.rendered.cache_clear()
    monkeypatch.setattr(
        runbook_pages, "page", lambda text: rendered.append(len(text)) or render(text)
    )
    for name in ("zone-lost", "zone-lost.md", "zone-lost", "nothing-here", "nothing-there"):
        client.get(f"/runbooks/{name}")
    assert len(rendered) == 1
    assert runbook_pages.rendered.cache_info().currsize == 1


# --- what it says --------------------------------------------------------------------------------


def operations_of(document: dict[str, Any]) -> Iterator[tuple[str, dict[str, Any]]]:
    for path, operations in document["paths"].items():
        for operation in operations.values():
            yield path, operation


def test_what_a_call_needs_is_documented(client: TestClient, store: FakeStore) -> None:
    store.described = busy_store().described
    client.get("/v1/jobs")
    document = client.get("/openapi.json").json()
    bearer = document["components"]["securitySchemes"]["bearer"]
    assert (bearer["type"], bearer["scheme"]) == ("http", "bearer")
    cookie = document["components"]["securitySchemes"]["cookie"]
    assert (cookie["in"], cookie["name"]) == ("cookie", COOKIE)
    needed = {
        path: operations["get"].get("security") for path, operations in document["paths"].items()
    }
    assert needed["/v1/traffic"] == [{"bearer": ["insights"]}, {"cookie": ["insights"]}]
    assert needed["/v1/jobs/by_status"] == needed["/v1/traffic"]
    assert needed["/v1/jobs/visits"][0] == {"bearer": ["insights", "sessions"]}
    assert needed["/v1/jobs/visits/live"][0] == {"bearer": ["sessions"]}
    assert needed["/v1/login"] == [{"bearer": []}, {"cookie": []}]
    assert {path for path, security in needed.items() if not security} == {"/healthz", "/readyz"}


def test_every_refusal_is_documented_as_the_problem_that_it_is(client: TestClient) -> None:
    document = client.get("/openapi.json").json()
    schema = {"$ref": "#/components/schemas/Problem"}
    for path, operation in operations_of(document):
        answers = operation["responses"]
        assert {"401", "403", "422", "429", "500", "503"} <= answers.keys(), path
        for status, answer in answers.items():
            if int(status) >= 400:
                assert answer["content"] == {"application/problem+json": {"schema": schema}}, path


def test_times_are_documented_as_times(client: TestClient) -> None:
    """None of an answer is a number of seconds since 1970."""
    schemas = client.get("/openapi.json").json()["components"]["schemas"]
    times = {
        "start",
        "end",
        "at",
        "since",
        "received",
        "updated",
        "watermark",
        "as_of",
        "from",
        "to",
    }
    for name, schema in schemas.items():
        for field, about in schema.get("properties", {}).items():
            if field in times:
                assert '"format": "date-time"' in json.dumps(about), f"{name}.{field}"


# --- a client that is made of it -----------------------------------------------------------------


@pytest.fixture(scope="module")
def url(panels: Path) -> Iterator[str]:
    with prometheus(StandIn()) as endpoint:
        settings = api_settings(panels).model_copy(update={"prometheus": [endpoint]})
        with at_loopback(create_app(settings, busy_store(), FakeFeed())) as url:
            yield url


@pytest.fixture(scope="module")
def generated(url: str, tmp_path_factory: pytest.TempPathFactory) -> Iterator[ModuleType]:
    """A package for the API with its jobs, imported from where it was written."""
    describe_jobs(url)
    package = tmp_path_factory.mktemp("generated") / "millrace_insights"
    with generated_client(f"{url}/openapi.json", package) as client:
        yield client


def call(generated: ModuleType, url: str, path: str, **parameters: Any) -> Any:
    """What the client's function answers, parsed by its types."""
    function = importlib.import_module(f"{generated.__name__}.api.{path}")
    patience = httpx.Timeout(PATIENCE_SECONDS)
    with generated.AuthenticatedClient(base_url=url, token=KEY, timeout=patience) as client:
        return function.sync(client=client, **parameters)


def test_a_generated_client_reads_traffic(generated: ModuleType, url: str) -> None:
    found = call(generated, url, "traffic.traffic", from_=TEN, to=ELEVEN)
    [window] = found.windows
    assert (window.start, window.end) == (TEN, ELEVEN)
    assert window.requests == window.status.additional_properties["2xx"] + 9
    extent = call(generated, url, "state.extent")
    assert extent.field_1h.from_ < TEN


def test_a_generated_client_follows_a_job_s_rows(generated: ModuleType, url: str) -> None:
    seen = []
    cursor = generated.types.UNSET
    while cursor is not None:
        page = call(
            generated, url, "jobs.rows_of_by_status", from_=TEN, to=ELEVEN, limit=50, cursor=cursor
        )
        seen += [(row.window_start, row.status) for row in page.rows]
        cursor = page.next_
    assert len(seen) == len(set(seen)) == 120
    sessions = call(generated, url, "jobs.live_of_visits", visitor="ann")
    assert sessions.open_ == 1


def test_a_generated_client_understands_a_refusal(generated: ModuleType, url: str) -> None:
    problem = call(generated, url, "traffic.traffic", from_=ELEVEN, to=TEN)
    assert (problem.status, problem.parameter) == (422, "to")
    assert "later than" in problem.detail


def test_a_generated_client_reads_what_operators_do(generated: ModuleType, url: str) -> None:
    overview = call(generated, url, "operations.overview")
    panel = overview.groups[0].panels[0].name
    picture = call(generated, url, "operations.picture", name=panel)
    assert (picture.end - picture.start).total_seconds() == 3600
    assert call(generated, url, "operations.alerts").alerts == []
