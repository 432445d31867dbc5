"""The proxies of the edge hosts: what they keep away, and whom they hand on to."""

import socket
import ssl
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager

import httpx
import pytest

from millrace.cluster import doors, tunnel
from millrace.common.waiting import wait_until
from tests.waiting import PATIENCE_SECONDS

LONGER_THAN_HEADERS_SECONDS = 60.0  # six times `timeout http-request`


@pytest.fixture(scope="module")
def edges(plan):
    return [host.name for host in plan.hosts_of("edge_proxy")]


@pytest.fixture
def at(plan):
    def at(edge, door):
        return tunnel.on_host(plan, plan.host(edge), doors.SERVICE, door)

    return at


@contextmanager
def connected(plan, at) -> Iterator[ssl.SSLSocket]:
    trusted = doors.credentials(plan).context
    with (
        socket.create_connection((at.host, at.port), PATIENCE_SECONDS) as link,
        trusted.wrap_socket(link, server_hostname=at.host) as opened,
    ):
        yield opened


@pytest.mark.parametrize("door", [doors.INSIGHTS, doors.INTAKE])
def test_who_trusts_the_authority_alone_may_trust_a_host(plan, edges, at, door):
    for edge in edges:
        with connected(plan, at(edge, door)) as link:
            assert link.version() == "TLSv1.3"
        with pytest.raises(httpx.ConnectError, match="certificate verify failed"):
            httpx.get(f"https://{at(edge, door)}/healthz", timeout=PATIENCE_SECONDS)


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1, ssl.TLSVersion.TLSv1_1])
def test_what_is_broken_of_tls_is_refused(edges, at, version):
    old = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    old.check_hostname, old.verify_mode = False, ssl.CERT_NONE
    old.set_ciphers("DEFAULT@SECLEVEL=0")
    old.minimum_version = old.maximum_version = version
    place = at(edges[0], doors.INSIGHTS)
    with (
        socket.create_connection((place.host, place.port), PATIENCE_SECONDS) as link,
        pytest.raises(ssl.SSLError),
    ):
        old.wrap_socket(link)


@pytest.mark.parametrize("door", [doors.INSIGHTS, doors.INTAKE])
def test_plain_http_is_refused(edges, at, door):
    with pytest.raises(httpx.RemoteProtocolError):
        httpx.get(f"http://{at(edges[0], door)}/healthz", timeout=PATIENCE_SECONDS)


def test_the_programs_behind_it_listen_to_their_own_host_alone(plan, hosts_of):
    for service in ("insight_api", "collector"):
        port = plan.services[service].ports["http"]
        for edge in hosts_of(service).values():
            assert edge.socket(f"tcp://127.0.0.1:{port}").is_listening
            assert not edge.socket(f"tcp://0.0.0.0:{port}").is_listening


@pytest.mark.parametrize("door", [doors.INSIGHTS, doors.INTAKE])
def test_headers_that_are_too_long_reach_no_program(plan, edges, through, door):
    headers = {"X-Long": "x" * 16_384}
    assert through(edges[0], door).get("/v1/status", headers=headers).status_code == 400
    many = {f"X-{number}": "x" for number in range(100)}
    assert through(edges[0], door).get("/v1/status", headers=many).status_code == 400


@pytest.mark.parametrize("door", [doors.INSIGHTS, doors.INTAKE])
def test_who_never_ends_a_request_is_let_go(plan, edges, at, door):
    with connected(plan, at(edges[0], door)) as link:
        link.settimeout(LONGER_THAN_HEADERS_SECONDS)
        link.sendall(b"GET /v1/status HTTP/1.1\r\nHost: edge\r\nX-Slow: ")
        assert b" 408 " in link.recv(4096)


def test_one_address_has_so_many_connections_and_others_go_on(plan, edges, at, host_named):
    most = plan.services["edge_proxy"].settings["limits"]["client_connections"]
    place = at(edges[0], doors.INSIGHTS)
    with ExitStack() as held:
        for _ in range(most + 50):
            link = socket.create_connection((place.host, place.port), PATIENCE_SECONDS)
            held.enter_context(link)
        refused = wait_until(lambda: one_more_is_refused(plan, place), PATIENCE_SECONDS)
        other = host_named(plan.hosts_of("redis")[0].name)  # of another address
        url = f"https://{plan.host(edges[0]).address}:{place.port}/healthz"
        answer = other.run(f"curl -sSfk -m 30 {url}")
    assert refused
    assert answer.rc == 0, answer.stderr
    # The proxy counts a connection until it has seen its end, which takes a busy core a while.
    assert wait_until(lambda: not one_more_is_refused(plan, place), PATIENCE_SECONDS)


@pytest.mark.parametrize("door", [doors.INSIGHTS, doors.INTAKE])
def test_a_body_that_never_comes_spoils_nobody_else_s_request(plan, edges, at, door):
    """The program answers before; whoever is next on that connection must not become the body."""
    head = b"POST /v1/events HTTP/1.1\r\nHost: edge\r\nContent-Length: 7\r\n\r\n"
    place = at(edges[0], door)
    for _ in range(20):
        with connected(plan, place) as link:
            assert link.selected_alpn_protocol() in (None, "http/1.1")
            link.sendall(head)
            assert link.recv(64).split()[1] in (b"401", b"405")
            for _ in range(2 * len(edges)):
                with connected(plan, place) as other:
                    other.sendall(b"GET /healthz HTTP/1.1\r\nHost: edge\r\n\r\n")
                    assert other.recv(64).split()[1] == b"200"


def one_more_is_refused(plan, place) -> bool:
    try:
        with connected(plan, place):
            return False
    except OSError:
        return True


def test_readers_are_answered_by_the_other_host_while_an_api_is_away(
    edges, through, host_named, plan
):
    first = host_named(edges[0])
    with stopped(first, "insight-api"):
        seen = through(edges[0], doors.INSIGHTS).get("/healthz")
        assert seen.status_code == 200
        assert through(edges[0], doors.OWN_INSIGHTS).get("/healthz").status_code == 503
    assert wait_until(
        lambda: through(edges[0], doors.OWN_INSIGHTS).get("/healthz").is_success, PATIENCE_SECONDS
    )


def test_producers_reach_each_collector_in_turn_and_the_other_one_while_one_is_away(
    plan, edges, through, host_named
):
    def requests() -> list[int]:
        port = plan.services["collector"].ports["metrics"]
        told = f"curl -sSf http://localhost:{port}/metrics"
        count = "awk '/^millrace_collector_request_seconds_count/ {n += $2} END {print n + 0}'"
        return [int(float(host_named(edge).check_output(f"{told} | {count}"))) for edge in edges]

    before = requests()
    for _ in range(10):
        nobody = {"Authorization": ""}
        answer = through(edges[0], doors.INTAKE).post("/v1/events", json={}, headers=nobody)
        assert answer.status_code == 401
    assert [after - ago for after, ago in zip(requests(), before, strict=True)] == [5, 5]
    with stopped(host_named(edges[0]), "collector"):
        statuses = {through(edges[0], doors.INTAKE).get("/readyz").status_code for _ in range(10)}
        assert statuses == {200}


@contextmanager
def stopped(host, unit) -> Iterator[None]:
    host.check_output("systemctl stop %s", unit)
    try:
        yield
    finally:
        host.check_output("systemctl start %s", unit)


def test_resident_memory_is_within_the_plan(plan, hosts_of):
    planned = plan.services["edge_proxy"].memory.total
    for edge in hosts_of("edge_proxy").values():
        user = plan.services["edge_proxy"].user
        assert sum(p.rss for p in edge.process.filter(user=user)) / 1024 <= planned
