"""Who may read what: each route by each scope, and that nobody has an answer by another's key."""

import asyncio
import itertools
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

import httpx
import pytest
from fastapi import FastAPI, WebSocket
from fastapi.routing import iter_route_contexts
from fastapi.testclient import TestClient
from hypothesis import HealthCheck, given
from hypothesis import settings as trying
from hypothesis import strategies as st
from millrace_api import access
from millrace_api.access import COOKIE
from millrace_api.settings import Settings
from millrace_api.store import JobState
from starlette.websockets import WebSocketDisconnect

from millrace_shared.keys import SCOPES, Key, Secret, sha256
from tests.api.conftest import api_settings
from tests.api.fakes import FakeFeed, FakeStore
from tests.api.keys import ALL, BEARER, bearer, create_app, following, key, secret_of
from tests.api.serving import busy_store
from tests.api.test_http import is_problem
from tests.api.test_metrics import samples
from tests.api.test_stream_over_http import served
from tests.clock import play

DAY = "from=2015-05-17T00:00:00Z&to=2015-05-18T00:00:00Z"
HOUR = "from=2015-05-17T10:00:00Z&to=2015-05-17T11:00:00Z"
# What the route asks for, and an address that it answers with 200, or by a redirect to nobody.
ROUTES: dict[str, tuple[set[str] | None, str]] = {
    "/v1/traffic": ({"insights"}, f"/v1/traffic?{DAY}"),
    "/v1/traffic/total": ({"insights"}, f"/v1/traffic/total?{DAY}"),
    "/v1/pages/top": ({"insights"}, f"/v1/pages/top?{DAY}"),
    "/v1/late": ({"insights"}, f"/v1/late?{DAY}"),
    "/v1/extent": ({"insights"}, "/v1/extent"),
    "/v1/progress": ({"insights"}, "/v1/progress"),
    "/v1/stream": ({"insights"}, "/v1/stream"),
    "/v1/jobs": ({"insights"}, "/v1/jobs"),
    "/v1/jobs/{job}": ({"insights"}, f"/v1/jobs/by_status?{DAY}"),
    "/v1/jobs/{job}/live": ({"sessions"}, "/v1/jobs/visits/live"),
    "/v1/jobs/{job}/closed": ({"sessions"}, f"/v1/jobs/visits/closed?{HOUR}"),
    "/v1/jobs/{job}/sessions": ({"sessions"}, f"/v1/jobs/visits/sessions?visitor=ann&{DAY}"),
    "/v1/dead-letters": ({"letters"}, f"/v1/dead-letters?{DAY}"),
    "/v1/status": ({"operations"}, "/v1/status"),
    "/v1/operations": ({"operations"}, "/v1/operations"),
    "/v1/operations/panels/{name}": ({"operations"}, "/v1/operations/panels/none"),
    "/v1/operations/events": ({"operations"}, "/v1/operations/events"),
    "/v1/operations/alerts": ({"operations"}, "/v1/operations/alerts"),
    "/runbooks/{name}": ({"operations"}, "/runbooks/README"),
    "/v1/login": (set(), "/v1/login"),
    "/healthz": (None, "/healthz"),
    "/readyz": (None, "/readyz"),
    "/openapi.json": (None, "/openapi.json"),
    "/": (None, "/"),
    "/operations": (None, "/operations"),
    "/docs": (None, "/docs"),
    "/docs/viewer": (None, "/docs/viewer/swagger-ui.css"),
    "/page": (None, "/page/page.css"),
}
ENDLESS = "/v1/stream"
ANSWERED = [route for route in ROUTES if route != ENDLESS]
EVERY_SET = [frozenset(some) for size in range(5) for some in itertools.combinations(SCOPES, size)]


def name_of(scopes: frozenset[str]) -> str:
    return "-".join(["key", *sorted(scopes)])


@pytest.fixture(scope="module")
def reader(panels: Path) -> Iterator[TestClient]:
    """Without a key of its own; there is one for each set of scopes."""
    keys = {name_of(some): key(name_of(some), *some) for some in EVERY_SET}
    settings = api_settings(panels)
    with TestClient(create_app(settings, busy_store(), FakeFeed(), following(keys))) as client:
        yield client


@pytest.fixture
def keys() -> dict[str, Key]:
    return {name: key(name, name) for name in SCOPES}


# --- each route ----------------------------------------------------------------------------------


def test_every_route_declares_what_it_asks_for(
    settings: Settings, store: FakeStore, feed: FakeFeed
) -> None:
    routes = [*iter_route_contexts(create_app(settings, store, feed).routes)]
    found = {
        route.path or "/": access.declared(route)
        for route in routes
        if "DELETE" not in (route.methods or ())
    }
    assert found == {
        path: None if scopes is None else frozenset(scopes) for path, (scopes, _) in ROUTES.items()
    }


@trying(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.sampled_from(ANSWERED), st.none() | st.sampled_from(EVERY_SET))
def test_a_route_answers_who_has_its_scope_and_nobody_else(
    reader: TestClient, route: str, scopes: frozenset[str] | None
) -> None:
    asked_for, address = ROUTES[route]
    headers = {} if scopes is None else bearer(name_of(scopes))
    answer = reader.get(address, headers=headers)
    if asked_for is None or (scopes is not None and asked_for <= scopes):
        assert answer.status_code in (200, 404, 503), answer.text  # no Prometheus is there
    elif scopes is None:
        assert is_problem(answer, 401)
        assert answer.headers["www-authenticate"] == "Bearer"
    else:
        assert is_problem(answer, 403)
        [scope] = asked_for
        assert answer.json()["scope"] == scope
        challenge = f'Bearer error="insufficient_scope", scope="{scope}"'
        assert answer.headers["www-authenticate"] == challenge


@pytest.mark.parametrize("scope", [*SCOPES, None])
def test_the_stream_is_for_who_has_its_scope(reader: TestClient, scope: str | None) -> None:
    headers = bearer(name_of(frozenset({scope}))) if scope else {}
    status = {None: 401, "insights": 200}.get(scope, 403)
    assert reader.head(ENDLESS, headers=headers).status_code == status


def test_rows_of_sessions_need_both_scopes(reader: TestClient) -> None:
    address = f"/v1/jobs/visits?{DAY}"
    for scopes in EVERY_SET:
        answer = reader.get(address, headers=bearer(name_of(scopes)))
        lacking = [one for one in ("insights", "sessions") if one not in scopes]
        assert answer.json().get("scope") == (lacking[0] if lacking else None)
        assert answer.status_code == (403 if lacking else 200)


@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE"])
@pytest.mark.parametrize("path", ["/v1/nothing", "/nothing", "/v1/jobs/visits/none", "/v1/traffic"])
def test_without_a_key_nobody_learns_what_there_is(
    reader: TestClient, method: str, path: str
) -> None:
    assert is_problem(reader.request(method, path), 401)
    answer = reader.request(method, path, headers=bearer(name_of(frozenset({"insights"}))))
    assert answer.status_code in (404, 405, 422)


def test_a_route_that_forgets_is_closed(
    settings: Settings, store: FakeStore, feed: FakeFeed
) -> None:
    app = create_app(settings, store, feed)

    @app.get("/forgets")
    async def forgets() -> str:
        return "a secret"

    @app.websocket("/socket")
    async def socket(websocket: WebSocket) -> None:
        await websocket.accept()

    with TestClient(app) as client:
        for headers in (BEARER, {}):
            answer = client.get("/forgets", headers=headers)
            assert is_problem(answer, 403)
        with (
            pytest.raises(WebSocketDisconnect),
            client.websocket_connect("/socket", headers=BEARER),
        ):
            pass
    assert refused(app)["undeclared"] == 2


def refused(app: FastAPI) -> dict[str, float]:
    name = "millrace_api_refused_requests_total"
    return {key[1]: n for key, n in samples(app.state.metrics).items() if key[0] == name}


# --- which keys ----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "sent",
    [
        "Bearer",
        "Bearer ",
        "Bearer short",
        f"Bearer {secret_of('unknown')}",
        f"Basic {secret_of(ALL)}",
        secret_of(ALL),
        f"Bearer {secret_of(ALL)}x",
        "Bearer \xff",
    ],
)
def test_what_is_no_key_is_refused(
    settings: Settings, store: FakeStore, feed: FakeFeed, sent: str
) -> None:
    with TestClient(create_app(settings, store, feed)) as client:
        answer = client.get("/v1/extent", headers={"Authorization": sent.encode("latin-1")})  # type: ignore[dict-item]
        assert is_problem(answer, 401)
        assert "secret" not in answer.text


def test_refusals_are_counted_by_reason_and_without_the_key(
    settings: Settings, store: FakeStore, feed: FakeFeed, keys: dict[str, Key]
) -> None:
    app = create_app(settings, store, feed, following(keys))
    with TestClient(app) as client:
        client.get("/v1/extent")
        client.get("/v1/extent", headers=bearer("unknown"))
        client.get("/v1/extent", headers={"Cookie": f"{COOKIE}={secret_of('unknown')}"})
        client.get("/v1/extent", headers=bearer("letters"))
        client.get("/v1/extent", headers=bearer("insights"))
    found = refused(app)
    assert {reason: n for reason, n in found.items() if n} == {
        "no_key": 1,
        "unknown_key": 2,
        "scope": 1,
    }
    assert {"token", "origin", "keys_unknown", "undeclared"} <= found.keys()


def test_a_key_ends_when_it_expires(settings: Settings, store: FakeStore, feed: FakeFeed) -> None:
    now = 1000.0
    keys = following({"guest": key("guest", "insights", expires=2000.0)}, lambda: now)
    with TestClient(create_app(settings, store, feed, keys), headers=bearer("guest")) as client:
        assert client.get("/v1/extent").status_code == 200
        now = 1999.9
        assert client.get("/v1/extent").status_code == 200
        now = 2000.0
        answer = client.get("/v1/extent")
        assert is_problem(answer, 401)
        assert answer.headers["www-authenticate"] == 'Bearer error="invalid_token"'


def test_while_a_key_is_exchanged_both_secrets_are_valid(
    settings: Settings, store: FakeStore, feed: FakeFeed
) -> None:
    now = 1000.0
    older, newer = (sha256(secret_of(name).encode()) for name in ("older", "newer"))
    both = Key([Secret(newer), Secret(older, until=2000.0)], scopes=["insights"])
    keys = following({"dashboard": both}, lambda: now)
    with TestClient(create_app(settings, store, feed, keys)) as client:

        def statuses() -> list[int]:
            names = ("older", "newer")
            return [client.get("/v1/extent", headers=bearer(n)).status_code for n in names]

        assert statuses() == [200, 200]
        now = 2000.0
        assert statuses() == [401, 200]


def test_the_rate_of_an_address_comes_before_its_keys(
    settings: Settings, store: FakeStore, feed: FakeFeed
) -> None:
    """Who tries keys is told to make a pause, whatever the next one is."""
    limits = {"client_requests_per_second": 0.001, "client_burst": 3}
    app = create_app(settings.model_copy(update=limits), store, feed)
    with TestClient(app) as client:
        tried = [client.get("/v1/extent", headers=bearer(f"{n}")).status_code for n in range(5)]
        assert tried == [401, 401, 401, 429, 429]
        assert client.get("/v1/extent", headers=BEARER).status_code == 429


# --- nobody's answer is another's ----------------------------------------------------------------


def over(app: FastAPI) -> httpx.AsyncClient:
    return httpx.AsyncClient(transport=httpx.ASGITransport(app), base_url="http://api")


def test_who_waits_for_an_answer_has_it_by_its_own_key(
    settings: Settings, keys: dict[str, Key]
) -> None:
    async def scene() -> None:
        store = FakeStore(takes_seconds=5)
        app = create_app(settings, store, FakeFeed(), following(keys))
        async with over(app) as client:
            address = f"/v1/traffic?{DAY}"
            ways: list[dict[str, str]] = [bearer("insights"), bearer("letters"), {}, bearer("no")]
            answers = await asyncio.gather(*(client.get(address, headers=way) for way in ways))
        assert [answer.status_code for answer in answers] == [200, 403, 401, 401]
        assert len(store.reads) == 1

    play(scene)


def test_an_answer_is_shared_among_equal_scopes_alone(settings: Settings) -> None:
    """A job's trouble is for operators; the rest of the answer is everybody's."""

    async def scene() -> None:
        store, now = busy_store(), datetime.now(UTC)
        store.doing = {"traffic": JobState("traffic", "failed", "why it failed", now, "", now)}
        entered, both_have = 0, asyncio.Event()

        async def states() -> dict[str, JobState]:
            nonlocal entered
            entered += 1
            if entered == 2:
                both_have.set()
            await both_have.wait()
            return store.doing

        store.states = states  # type: ignore[method-assign]
        both = ("insights", "operations")
        keys = {name: key(name, *both) for name in ("one", "two")}
        keys["three"] = key("three", "insights")
        app = create_app(settings, store, FakeFeed(), following(keys))
        async with over(app) as client:
            names = ["three", "one", "two", "three"]
            answers = await asyncio.gather(
                *(client.get("/v1/progress", headers=bearer(name)) for name in names)
            )
        troubles = [
            next(job for job in answer.json()["jobs"] if job["job"] == "traffic")["trouble"]
            for answer in answers
        ]
        assert troubles == [None, "why it failed", "why it failed", None]
        assert entered == 2

    play(scene)


def test_a_tag_opens_nothing(
    settings: Settings, store: FakeStore, feed: FakeFeed, keys: dict[str, Key]
) -> None:
    with TestClient(create_app(settings, store, feed, following(keys))) as client:
        known = client.get("/v1/extent", headers=bearer("insights")).headers["etag"]
        for tag in (known, "*"):
            has = {"If-None-Match": tag}
            assert client.get("/v1/extent", headers=has | bearer("insights")).status_code == 304
            assert client.get("/v1/extent", headers=has | bearer("letters")).status_code == 403
            assert client.get("/v1/extent", headers=has).status_code == 401


def test_a_stream_ends_once_its_key_has(
    settings: Settings, store: FakeStore, feed: FakeFeed
) -> None:
    now = 1000.0
    keys = following({"guest": key("guest", "insights", expires=2000.0)}, lambda: now)

    async def follow(client: httpx.AsyncClient) -> None:
        nonlocal now
        async with client.stream("GET", "/v1/stream", headers=bearer("guest")) as answer:
            assert answer.status_code == 200
            lines = answer.aiter_lines()
            async for line in lines:
                if line == "data: redis":
                    break
            now = 2000.0
            feed.entries.append(("6-0", "a secret"))
            rest = [line async for line in lines]  # it has an end
            assert "a secret" not in "".join(rest)

    asyncio.run(served(create_app(settings, store, feed, keys), follow))


# --- browsers ------------------------------------------------------------------------------------


@pytest.fixture
def browser(
    settings: Settings, store: FakeStore, feed: FakeFeed, keys: dict[str, Key]
) -> Callable[[str], TestClient]:
    """At an address of this API."""
    app = create_app(settings, store, feed, following(keys | {"none": key("none")}))

    def at(address: str) -> TestClient:
        return TestClient(app, base_url=address)

    return at


@pytest.mark.parametrize("scheme", ["http", "https"])
def test_who_has_logged_in_reads_by_a_cookie_that_no_script_can_read(
    browser: Callable[[str], TestClient], scheme: str
) -> None:
    client = browser(f"{scheme}://api.example.com")
    ours = {"Origin": f"{scheme}://api.example.com"}
    answer = client.post("/v1/login", headers=bearer("insights") | ours)
    assert (answer.status_code, answer.content) == (204, b"")
    name, *attributes = answer.headers["set-cookie"].split("; ")
    assert name == f"{COOKIE}={secret_of('insights')}"
    secure = {"Secure"} if scheme == "https" else set()
    assert {*attributes} == {"HttpOnly", "SameSite=strict", "Path=/"} | secure
    assert client.get("/v1/extent").status_code == 200
    assert client.get(f"/v1/dead-letters?{DAY}").status_code == 403
    who = client.get("/v1/login")
    assert who.json() == {"name": "insights", "means": "cookie", "scopes": ["insights"]}
    assert who.headers["cache-control"] == "no-store"
    assert client.delete("/v1/login", headers=ours).status_code == 204
    assert not client.cookies
    assert client.get("/v1/extent").status_code == 401


@pytest.mark.parametrize(
    ("name", "status"), [("unknown", 401), ("none", 403), (None, 401), ("insights", 204)]
)
def test_only_a_key_that_reads_something_logs_in(
    browser: Callable[[str], TestClient], name: str | None, status: int
) -> None:
    answer = browser("http://api").post("/v1/login", headers=bearer(name) if name else {})
    assert answer.status_code == status
    assert ("set-cookie" in answer.headers) == (status == 204)


def test_a_cookie_does_not_log_in_again(browser: Callable[[str], TestClient]) -> None:
    client = browser("http://api")
    client.post("/v1/login", headers=bearer("insights"))
    assert is_problem(client.post("/v1/login"), 401)


@pytest.mark.parametrize(
    ("headers", "is_ours"),
    [
        ({}, True),  # no browser
        ({"Origin": "http://api"}, True),
        ({"Origin": "http://evil.example"}, False),
        ({"Origin": "http://api.evil.example"}, False),
        ({"Origin": "null"}, False),
        ({"Origin": "http://api", "Sec-Fetch-Site": "same-origin"}, True),
        ({"Origin": "http://api:81", "Sec-Fetch-Site": "same-site"}, False),
        ({"Origin": "http://evil.example", "Sec-Fetch-Site": "cross-site"}, False),
    ],
)
@pytest.mark.parametrize("method", ["POST", "DELETE"])
def test_another_sites_page_logs_nobody_in_or_out(
    browser: Callable[[str], TestClient], method: str, headers: dict[str, str], is_ours: bool
) -> None:
    client = browser("http://api")
    answer = client.request(method, "/v1/login", headers=bearer("insights") | headers)
    assert answer.status_code == (204 if is_ours else 403)
    assert ("set-cookie" in answer.headers) == is_ours


def test_a_header_decides_before_a_cookie(browser: Callable[[str], TestClient]) -> None:
    client = browser("http://api")
    client.post("/v1/login", headers=bearer("insights"))
    assert client.get("/v1/login", headers=bearer("letters")).json()["name"] == "letters"
    assert client.get("/v1/extent", headers=bearer("unknown")).status_code == 401


def test_who_comes_by_the_address_line_gets_a_page_to_type_a_key_in(
    browser: Callable[[str], TestClient],
) -> None:
    client, comes = browser("http://api"), {"Accept": "text/html,*/*;q=0.8"}
    answer = client.get("/runbooks/README", headers=comes)
    assert answer.status_code == 401
    assert answer.headers["content-type"].startswith("text/html")
    assert answer.headers["www-authenticate"] == "Bearer"
    assert answer.headers["cache-control"] == "no-store"
    assert "/page/key.js" in answer.text
    lacking = client.get("/runbooks/README", headers=comes | bearer("insights"))
    assert (lacking.status_code, lacking.text) == (403, answer.text)
    allowed = client.get("/runbooks/README", headers=comes | bearer("operations"))
    assert '<main class="runbook">' in allowed.text


# --- while ZooKeeper is away ---------------------------------------------------------------------


@pytest.mark.parametrize("headers", [{}, BEARER, {"Cookie": f"{COOKIE}={secret_of(ALL)}"}])
def test_a_door_that_knows_no_keys_yet_says_so(
    settings: Settings, store: FakeStore, feed: FakeFeed, headers: dict[str, str]
) -> None:
    app = create_app(settings, store, feed, following(None))
    with TestClient(app, headers=headers) as client:
        answer = client.get("/v1/extent")
        assert is_problem(answer, 503)
        assert int(answer.headers["retry-after"]) > 0
        assert "www-authenticate" not in answer.headers
        for path in ("/healthz", "/readyz", "/", "/page/page.css"):
            assert client.get(path).status_code == 200
    assert refused(app)["keys_unknown"] == 1


def test_none_is_known_is_not_that_there_are_none(
    settings: Settings, store: FakeStore, feed: FakeFeed
) -> None:
    with TestClient(create_app(settings, store, feed, following({}))) as client:
        assert is_problem(client.get("/v1/extent", headers=BEARER), 401)
