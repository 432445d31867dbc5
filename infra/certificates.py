"""Certificates of an environment: one authority of its own, and what hosts show who calls them.

They lie with the environment's secrets on the operator's machine: ``ca.key`` and ``ca.crt``, and
for each name ``NAME.pem`` (certificate, then key) and ``NAME.ends`` (seconds since 1970). A client
that trusts ``ca.crt`` knows that it talks to this environment and to no other one.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from ipaddress import IPv4Address
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from millrace.common import private_file
from millrace.common.paths import stack_secrets
from millrace.plan import Plan

SERVICE = "edge_proxy"  # whose hosts have certificates
AUTHORITY_DAYS = 3650
CERTIFICATE_DAYS = (
    397  # the longest that browsers take (CA/Browser Forum, Baseline Requirements 6.3.2)
)
CERTIFICATE_ENDS = "-----END CERTIFICATE-----\n"  # its key follows in the same file
EARLIER = timedelta(hours=1)  # clocks of clients that are slow


@dataclass(frozen=True)
class Certificate:
    """PEM texts."""

    certificate: str
    private_key: str


@dataclass(frozen=True)
class Subject:
    """Whom a certificate is for: ``name``, and all names and addresses that clients call it by."""

    name: str
    names: tuple[str, ...]
    addresses: tuple[str, ...] = ()


class Authority:
    """Who signs an environment's certificates; made by the first operator."""

    def __init__(self, folder: Path, now: datetime) -> None:
        self._folder = folder
        self._now = now

    def ensure(self, cluster: str) -> None:
        """Have it. It is made where there is none: every client would have to learn a new one."""
        if (self._folder / "ca.crt").exists():
            return
        key = ec.generate_private_key(ec.SECP256R1())
        name = _name(f"{cluster} certificate authority")
        made = (
            self._begun(name, name, key.public_key(), AUTHORITY_DAYS)
            .add_extension(x509.BasicConstraints(ca=True, path_length=0), critical=True)
            .add_extension(_usage(signs=True), critical=True)
            .add_extension(
                x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False
            )
            .sign(key, hashes.SHA256())
        )
        private_file.write(self._folder / "ca.key", _private(key))
        # Last: half a pair must not pass for one.
        private_file.write(self._folder / "ca.crt", _public(made))

    def issue(self, subject: Subject, renew: timedelta) -> Certificate:
        """The subject's certificate: the one that is there, unless it ends within ``renew``, isn't
        this authority's, or is for other names."""
        signer = x509.load_pem_x509_certificate((self._folder / "ca.crt").read_bytes())
        place = self._folder / f"{subject.name}.pem"
        if not (place.exists() and self._serves(place.read_bytes(), signer, subject, renew)):
            self._make(subject, signer, place)
        certificate, end, key = place.read_text().partition(CERTIFICATE_ENDS)
        return Certificate(certificate + end, key)

    def _serves(
        self, content: bytes, signer: x509.Certificate, subject: Subject, renew: timedelta
    ) -> bool:
        found = x509.load_pem_x509_certificate(content)
        names = found.extensions.get_extension_for_class(x509.SubjectAlternativeName).value
        return (
            found.issuer == signer.subject
            and found.not_valid_after_utc > self._now + renew
            and names == _alternatives(subject)
            and (self._folder / f"{subject.name}.ends").exists()
        )

    def _make(self, subject: Subject, signer: x509.Certificate, place: Path) -> None:
        signing = serialization.load_pem_private_key((self._folder / "ca.key").read_bytes(), None)
        assert isinstance(signing, ec.EllipticCurvePrivateKey)
        key = ec.generate_private_key(ec.SECP256R1())
        made = (
            self._begun(_name(subject.name), signer.subject, key.public_key(), CERTIFICATE_DAYS)
            .add_extension(x509.BasicConstraints(ca=False, path_length=None), critical=True)
            .add_extension(_usage(signs=False), critical=True)
            .add_extension(
                x509.ExtendedKeyUsage(
                    [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
                ),
                critical=False,
            )
            .add_extension(_alternatives(subject), critical=False)
            .add_extension(
                x509.AuthorityKeyIdentifier.from_issuer_public_key(signing.public_key()),
                critical=False,
            )
            .sign(signing, hashes.SHA256())
        )
        ends = int(made.not_valid_after_utc.timestamp())
        private_file.write(place.with_suffix(".ends"), f"{ends}\n")
        private_file.write(place, _public(made) + _private(key))

    def _begun(
        self, of: x509.Name, by: x509.Name, key: ec.EllipticCurvePublicKey, days: int
    ) -> x509.CertificateBuilder:
        return (
            x509.CertificateBuilder()
            .subject_name(of)
            .issuer_name(by)
            .public_key(key)
            .serial_number(x509.random_serial_number())
            .not_valid_before(self._now - EARLIER)
            .not_valid_after(self._now + timedelta(days=days))
        )


def ensure_certificates(plan: Plan, now: datetime | None = None) -> None:
    """Have the environment's authority, and a certificate for each host that shows one."""
    if SERVICE not in plan.services:
        return
    authority = _authority(plan, now)
    for host in plan.hosts_of(SERVICE):
        # An operator may call it by the mirror of its address (`Plan.reached_at`).
        addresses = dict.fromkeys((host.address, plan.reached_at(host.address)))
        authority.issue(Subject(host.name, (host.name,), tuple(addresses)), _renew(plan))


def balancer_certificate(plan: Plan, now: datetime | None = None) -> Certificate:
    """What a load balancer shows that has no certificate of a public authority: it encrypts from
    the first day, and no browser trusts it."""
    subject = Subject("balancer", (f"edge.{plan.cluster}.internal",))
    return _authority(plan, now).issue(subject, _renew(plan))


def _authority(plan: Plan, now: datetime | None) -> Authority:
    authority = Authority(stack_secrets(plan.environment), now or datetime.now(UTC))
    authority.ensure(plan.cluster)
    return authority


def _renew(plan: Plan) -> timedelta:
    return timedelta(days=plan.services[SERVICE].settings["certificates"]["renew_days"])


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)])


def _alternatives(subject: Subject) -> x509.SubjectAlternativeName:
    names: Sequence[x509.GeneralName] = [
        *(x509.DNSName(name) for name in subject.names),
        *(x509.IPAddress(IPv4Address(address)) for address in subject.addresses),
    ]
    return x509.SubjectAlternativeName(names)


def _usage(signs: bool) -> x509.KeyUsage:
    return x509.KeyUsage(
        digital_signature=not signs,
        content_commitment=False,
        key_encipherment=False,
        data_encipherment=False,
        key_agreement=False,
        key_cert_sign=signs,
        crl_sign=signs,
        encipher_only=False,
        decipher_only=False,
    )


def _public(certificate: x509.Certificate) -> str:
    return certificate.public_bytes(serialization.Encoding.PEM).decode()


def _private(key: ec.EllipticCurvePrivateKey) -> str:
    return key.private_bytes(
        serialization.Encoding.PEM,
        serialization.PrivateFormat.PKCS8,
        serialization.NoEncryption(),
    ).decode()
