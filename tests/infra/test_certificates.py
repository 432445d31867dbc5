"""An environment's authority and certificates, as clients and servers of TLS take them."""

import socket
import ssl
import threading
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.x509.verification import PolicyBuilder, Store

from infra import certificates
from infra.certificates import CERTIFICATE_DAYS, Authority, Subject
from millrace.plan import load_plan

NOW = datetime(2026, 5, 17, 10, tzinfo=UTC)
RENEW = timedelta(days=30)
EDGE = Subject("edge-1", ("edge-1",), ("198.18.0.71", "127.18.0.71"))


@pytest.fixture
def authority(tmp_path: Path) -> Authority:
    made = Authority(tmp_path, NOW)
    made.ensure("millrace-local")
    return made


def later(folder: Path, days: int) -> Authority:
    return Authority(folder, NOW + timedelta(days=days))


def test_a_certificate_is_of_the_authority_and_for_each_of_its_names(
    authority: Authority, tmp_path: Path
) -> None:
    issued = x509.load_pem_x509_certificate(authority.issue(EDGE, RENEW).certificate.encode())
    signer = x509.load_pem_x509_certificate((tmp_path / "ca.crt").read_bytes())
    names = (
        x509.DNSName("edge-1"),
        *map(x509.IPAddress, map(certificates.IPv4Address, EDGE.addresses)),
    )
    for name in names:
        policy = PolicyBuilder().store(Store([signer])).time(NOW).build_server_verifier(name)
        assert policy.verify(issued, [])[0] == issued


def test_what_there_is_stays_until_it_ends_soon(authority: Authority, tmp_path: Path) -> None:
    made = authority.issue(EDGE, RENEW)
    soon = CERTIFICATE_DAYS - RENEW.days
    assert later(tmp_path, soon - 1).issue(EDGE, RENEW) == made
    renewed = later(tmp_path, soon).issue(EDGE, RENEW)
    assert renewed != made
    found = x509.load_pem_x509_certificate(renewed.certificate.encode())
    ends = float((tmp_path / "edge-1.ends").read_text())
    assert found.not_valid_after_utc.timestamp() == ends
    assert ends == (NOW + timedelta(days=soon + CERTIFICATE_DAYS)).timestamp()


def test_a_host_of_another_address_gets_another_one(authority: Authority) -> None:
    made = authority.issue(EDGE, RENEW)
    moved = Subject(EDGE.name, EDGE.names, ("198.18.0.99",))
    assert authority.issue(moved, RENEW) != made


def test_a_new_authority_signs_all_anew(authority: Authority, tmp_path: Path) -> None:
    made = authority.issue(EDGE, RENEW)
    authority.ensure("millrace-local")
    assert authority.issue(EDGE, RENEW) == made
    (tmp_path / "ca.crt").unlink()
    authority.ensure("millrace-other")
    assert authority.issue(EDGE, RENEW) != made


def test_nobody_else_reads_a_key(authority: Authority, tmp_path: Path) -> None:
    authority.issue(EDGE, RENEW)
    for path in tmp_path.iterdir():
        assert path.stat().st_mode & 0o077 == 0, path


def test_each_edge_host_has_one_for_the_ways_to_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(certificates, "stack_secrets", lambda stack: tmp_path)
    plan = load_plan("test")
    certificates.ensure_certificates(plan, NOW)
    made = {path.stem for path in tmp_path.glob("*.pem")}
    assert made == {host.name for host in plan.hosts_of("edge_proxy")}
    for host in plan.hosts_of("edge_proxy"):
        found = x509.load_pem_x509_certificate((tmp_path / f"{host.name}.pem").read_bytes())
        names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        assert {str(one) for one in names.get_values_for_type(x509.IPAddress)} == {
            host.address,
            plan.reached_at(host.address),
        }


def test_a_client_that_trusts_the_authority_talks_to_its_hosts_and_no_others(
    tmp_path: Path,
) -> None:
    ours, other = tmp_path / "ours", tmp_path / "other"
    for folder in (ours, other):
        authority = Authority(folder, datetime.now(UTC))
        authority.ensure("millrace-local")
        authority.issue(Subject("edge-1", ("edge-1",), ("127.0.0.1",)), RENEW)
    client = ssl.create_default_context(cafile=ours / "ca.crt")
    assert handshake(client, ours / "edge-1.pem") is None
    assert "certificate verify failed" in str(handshake(client, other / "edge-1.pem"))


def handshake(client: ssl.SSLContext, pem: Path) -> Exception | None:
    """What the client refuses a server for that shows this certificate."""
    server = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    server.load_cert_chain(pem)
    here, there = socket.socketpair()

    def serve() -> None:
        try:
            server.wrap_socket(there, server_side=True).close()
        except (ssl.SSLError, OSError):
            there.close()

    thread = threading.Thread(target=serve)
    thread.start()
    try:
        client.wrap_socket(here, server_hostname="127.0.0.1").close()
    except ssl.SSLError as error:
        return error
    finally:
        here.close()
        thread.join()
    return None
