"""What is the same for all answers: problems, HEAD, parameters, tags, compression, headers."""

import asyncio
import gzip
import logging
from collections.abc import Callable

import httpx
import pytest
from fastapi.testclient import TestClient
from millrace_api.app import GZIP_BYTES
from millrace_api.ranges import Window
from millrace_api.settings import Settings
from millrace_api.store import TrafficRow

from tests.api.fakes import FakeFeed, FakeStore
from tests.api.keys import BEARER, create_app
from tests.api.test_stream_over_http import served
from tests.clock import play

Row = Callable[..., TrafficRow]
DAY = {"from": "2015-05-17T00:00:00Z", "to": "2015-05-18T00:00:00Z"}
ORIGIN = "https://dashboards.example.com"
ROUTES = [
    ("/v1/traffic", DAY),
    ("/v1/traffic/total", DAY),
    ("/v1/pages/top", DAY),
    ("/v1/dead-letters", DAY),
    ("/v1/late", DAY),
    ("/v1/extent", {}),
    ("/v1/progress", {}),
    ("/v1/status", {}),
    ("/v1/jobs", {}),
    ("/v1/operations", {}),
    ("/healthz", {}),
    ("/readyz", {}),
    ("/", {}),
    ("/operations", {}),
    ("/runbooks/README", {}),
    ("/docs", {}),
    ("/openapi.json", {}),
    ("/page/page.css", {}),
]
PUBLIC = ("/", "/operations", "/docs", "/openapi.json", "/page/page.css")
each_route = pytest.mark.parametrize(("path", "asked"), ROUTES)


def is_problem(answer: httpx.Response, status: int) -> bool:
    told = answer.json()
    return (
        answer.status_code == told["status"] == status
        and answer.headers["content-type"] == "application/problem+json"
        and bool(told["title"] and told["detail"])
        and answer.headers["cache-control"] == "no-store"
    )


# --- problems ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "path", ["/v1/nothing", "/nothing", "/page/nothing.js", "/page/%00", "/page/" + "x" * 300]
)
def test_what_is_not_there_is_a_problem(client: TestClient, path: str) -> None:
    assert is_problem(client.get(path), 404)


@pytest.mark.parametrize("path", ["/v1/traffic", "/healthz", "/", "/page/page.css"])
@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS"])
def test_what_is_only_read_says_so(client: TestClient, path: str, method: str) -> None:
    answer = client.request(method, path)
    assert is_problem(answer, 405)
    if not path.startswith("/page"):
        assert answer.headers["allow"] == "GET"


def test_a_bug_is_a_problem_whose_name_is_in_the_log(
    client: TestClient,
    store: FakeStore,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def fails(_: object) -> None:
        raise ZeroDivisionError("secret")

    monkeypatch.setattr(store, "late_events", fails)
    with caplog.at_level(logging.ERROR):
        answer = client.get("/v1/late", params=DAY)
    assert is_problem(answer, 500)
    instance = answer.json()["instance"]
    assert instance.startswith("urn:uuid:")
    [record] = [one for one in caplog.records if instance in one.getMessage()]
    assert record.exc_info
    assert "ZeroDivisionError" in caplog.text
    assert "secret" not in answer.text


# --- HEAD ----------------------------------------------------------------------------------------


@each_route
def test_head_is_get_without_the_body(client: TestClient, path: str, asked: dict[str, str]) -> None:
    got, head = client.get(path, params=asked), client.head(path, params=asked)
    assert (head.status_code, head.content) == (got.status_code, b"")
    changing = {"etag", "content-length"} if path in ("/v1/status", "/v1/progress") else set()
    assert {*head.headers} - changing == {*got.headers} - changing


def test_head_of_the_stream_ends(settings: Settings, store: FakeStore, feed: FakeFeed) -> None:
    app = create_app(settings, store, feed)

    async def ask(client: httpx.AsyncClient) -> None:
        for _ in range(settings.max_streams + 1):
            answer = await client.head("/v1/stream")
            assert answer.status_code == 200
            assert answer.headers["content-type"].startswith("text/event-stream")
        while app.state.hub.viewers():
            await asyncio.sleep(0.001)

    asyncio.run(served(app, ask))


# --- parameters ----------------------------------------------------------------------------------

REFUSING = [route for route in ROUTES if not route[0].startswith("/page/")]


@pytest.mark.parametrize(("path", "asked"), REFUSING)
def test_a_parameter_that_nobody_reads_is_refused(
    client: TestClient, path: str, asked: dict[str, str]
) -> None:
    answer = client.get(path, params=asked | {"form": "2015"})
    assert is_problem(answer, 422)
    assert answer.json()["parameter"] == "form"
    assert all(name in answer.json()["detail"] for name in asked)


@pytest.mark.parametrize(("path", "asked"), REFUSING)
def test_a_parameter_that_is_given_twice_is_refused(
    client: TestClient, path: str, asked: dict[str, str]
) -> None:
    twice = [*asked.items(), *(asked or {"x": "1", "y": "1"}).items(), *asked.items(), ("x", "1")]
    answer = client.get(path, params=twice)
    assert is_problem(answer, 422)
    if asked:
        assert answer.json() == answer.json() | {
            "parameter": "from",
            "detail": "from: is given twice",
        }


# --- tags ----------------------------------------------------------------------------------------


@each_route
def test_who_has_an_answer_already_is_told_so(
    client: TestClient, path: str, asked: dict[str, str]
) -> None:
    answer = client.get(path, params=asked)
    if path in ("/healthz", "/readyz"):
        assert answer.headers["cache-control"] == "no-store"
        assert "etag" not in answer.headers
        return
    is_public = path in PUBLIC
    assert answer.headers["cache-control"] == ("no-cache" if is_public else "private, no-cache")
    assert ("Authorization, Cookie" in answer.headers.get("vary", "")) != is_public
    tag = answer.headers["etag"]
    assert tag.startswith('W/"')
    for known in (tag, tag.removeprefix("W/"), f'"other", {tag}', "*"):
        again = client.get(path, params=asked, headers={"If-None-Match": known})
        assert (again.status_code, again.content) == (304, b""), known
        assert again.headers["etag"] == tag
        assert "content-length" not in again.headers
    other = client.get(path, params=asked, headers={"If-None-Match": '"other"'})
    assert (other.status_code, other.content) == (200, answer.content)


def test_a_row_that_changes_has_another_tag(client: TestClient, store: FakeStore, row: Row) -> None:
    store.rows = [row(Window.HOUR, "10:00", requests=1)]
    tag = client.get("/v1/traffic", params=DAY).headers["etag"]
    store.rows = [row(Window.HOUR, "10:00", requests=2)]
    answer = client.get("/v1/traffic", params=DAY, headers={"If-None-Match": tag})
    assert answer.json()["windows"][0]["requests"] == 2


def test_a_refusal_has_no_tag_and_is_not_kept(client: TestClient, store: FakeStore) -> None:
    store.away = True
    answer = client.get("/v1/late", params=DAY, headers={"If-None-Match": "*"})
    assert is_problem(answer, 503)
    assert "etag" not in answer.headers


# --- compression ---------------------------------------------------------------------------------


def test_large_answers_are_compressed_for_who_takes_it(
    client: TestClient, store: FakeStore, row: Row
) -> None:
    store.rows = [row(Window.MINUTE, f"10:{minute:02}") for minute in range(60)]
    path, asked = "/v1/traffic", DAY | {"window": "1m"}
    plain = client.get(path, params=asked, headers={"Accept-Encoding": "identity"})
    assert "content-encoding" not in plain.headers
    with client.stream("GET", path, params=asked) as answer:
        assert answer.headers["content-encoding"] == "gzip"
        assert "Accept-Encoding" in answer.headers["vary"]
        raw = b"".join(answer.iter_raw())
    assert len(raw) < len(plain.content) / 4
    assert gzip.decompress(raw) == plain.content
    assert answer.headers["etag"] == plain.headers["etag"]


@pytest.mark.parametrize("path", ["/docs/viewer/swagger-ui-bundle.js", "/page/page.css"])
def test_what_is_the_same_for_all_is_not_compressed_for_each(client: TestClient, path: str) -> None:
    answer = client.get(path, headers={"Accept-Encoding": "gzip"})
    assert "content-encoding" not in answer.headers
    assert len(answer.content) > GZIP_BYTES


# --- headers -------------------------------------------------------------------------------------


@pytest.mark.parametrize("path", [*(path for path, _ in ROUTES), "/nothing"])
def test_every_answer_has_the_headers_of_security(client: TestClient, path: str) -> None:
    headers = client.get(path).headers
    assert headers["x-content-type-options"] == "nosniff"
    assert headers["referrer-policy"] == "no-referrer"
    policy = dict(
        one.strip().split(" ", 1) for one in headers["content-security-policy"].split(";")
    )
    assert policy["default-src"] == "'none'"
    assert policy["frame-ancestors"] == "'none'"
    assert policy["script-src"] == "'self'"


def test_no_other_page_may_read_it_unless_it_is_let_in(
    settings: Settings, store: FakeStore, feed: FakeFeed, client: TestClient
) -> None:
    closed = client.get("/v1/extent", headers={"Origin": ORIGIN})
    assert not [name for name in closed.headers if name.startswith("access-control")]
    settings = settings.model_copy(update={"allowed_origins": [ORIGIN]})
    with TestClient(create_app(settings, store, feed), headers=BEARER) as opened:
        answer = opened.get("/v1/extent", headers={"Origin": ORIGIN})
        assert answer.headers["access-control-allow-origin"] == ORIGIN
        assert "Link" in answer.headers["access-control-expose-headers"]
        other = opened.get("/v1/extent", headers={"Origin": "https://example.net"})
        assert "access-control-allow-origin" not in other.headers
        asked = {"Origin": ORIGIN, "Access-Control-Request-Method": "GET"}
        preflight = opened.options("/v1/extent", headers=asked)
        assert preflight.headers["access-control-allow-origin"] == ORIGIN
        refused = opened.get("/v1/nothing", headers={"Origin": ORIGIN})
        assert refused.headers["access-control-allow-origin"] == ORIGIN  # so that it can be read


def test_who_shares_an_answer_has_headers_of_its_own(
    settings: Settings, store: FakeStore, feed: FakeFeed
) -> None:
    store.takes_seconds = 0.05
    app = create_app(settings.model_copy(update={"allowed_origins": [ORIGIN]}), store, feed)

    async def ask(client: httpx.AsyncClient, **headers: str) -> httpx.Response:
        return await client.get("/v1/traffic", params=DAY, headers=headers)

    async def scenario() -> None:
        transport = httpx.ASGITransport(app)
        async with httpx.AsyncClient(
            transport=transport, base_url="http://api", headers=BEARER
        ) as client:
            known = (await ask(client)).headers["etag"]
            store.reads.clear()
            theirs, plain, again = await asyncio.gather(
                ask(client, Origin=ORIGIN),
                ask(client),
                ask(client, **{"If-None-Match": known}),
            )
        assert len(store.reads) == 1
        assert theirs.headers["access-control-allow-origin"] == ORIGIN
        assert "access-control-allow-origin" not in plain.headers
        assert [answer.status_code for answer in (theirs, plain, again)] == [200, 200, 304]

    play(scenario)
