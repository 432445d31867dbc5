"""People by the load balancer's word: what makes a person, and all that doesn't."""

import asyncio
import base64
import json
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.asymmetric.utils import decode_dss_signature
from fastapi.testclient import TestClient
from hypothesis import given
from hypothesis import strategies as st
from millrace_api.access import CannotTell, Unidentified
from millrace_api.people import (
    KEYS_KEPT,
    LONGEST_STREAM_SECONDS,
    UNKNOWN_SECONDS,
    BalancersPeople,
    NoSuchKey,
    scopes_of,
)
from millrace_api.settings import Oidc, OidcScopes, Settings

from millrace_shared.keys import SCOPES
from tests.api.fakes import FakeFeed, FakeStore
from tests.api.keys import bearer, create_app, following, key
from tests.api.test_access import refused
from tests.api.test_http import is_problem
from tests.clock import play

BALANCER = "arn:aws:elasticloadbalancing:eu-central-1:123456789012:loadbalancer/app/edge/0123"
KEY_ID = "12345678-1234-1234-1234-123456789012"
GRANTED = OidcScopes(
    everybody=["insights"],
    groups={"operators": ["operations", "letters"], "analysts": ["sessions"]},
    groups_claim="groups",
)
OIDC = Oidc(region="eu-central-1", balancer=BALANCER, scopes=GRANTED)
PRIVATE, OTHER = (ec.generate_private_key(ec.SECP256R1()) for _ in range(2))
NOW = 1_000_000.0


def pem(private: ec.EllipticCurvePrivateKey = PRIVATE) -> str:
    return (
        private.public_key()
        .public_bytes(serialization.Encoding.PEM, serialization.PublicFormat.SubjectPublicKeyInfo)
        .decode()
    )


def part(content: dict[str, Any]) -> str:
    """As the balancer writes it: with padding, which JWTs don't have."""
    return base64.urlsafe_b64encode(json.dumps(content).encode()).decode()


def token(
    claims: dict[str, Any] | None = None,
    private: ec.EllipticCurvePrivateKey = PRIVATE,
    **header: Any,
) -> str:
    told = {
        "alg": "ES256",
        "kid": KEY_ID,
        "signer": BALANCER,
        "iss": "https://idp.example.com",
        "client": "millrace",
        "exp": int(NOW) + 120,
    }
    signed = f"{part(told | header)}.{part(claims or {'sub': 'u1', 'email': 'ann@example.com'})}"
    r, s = decode_dss_signature(private.sign(signed.encode(), ec.ECDSA(hashes.SHA256())))
    signature = r.to_bytes(32, "big") + s.to_bytes(32, "big")
    return f"{signed}.{base64.urlsafe_b64encode(signature).decode()}"


@dataclass
class FakeFetch:
    keys: dict[str, str] = field(default_factory=lambda: {KEY_ID: pem()})
    fetched: list[str] = field(default_factory=list)
    away: bool = False

    def __call__(self, key_id: str) -> str:
        self.fetched.append(key_id)
        if self.away:
            raise OSError("unreachable")
        if key_id not in self.keys:
            raise NoSuchKey(key_id)
        return self.keys[key_id]


@pytest.fixture
def fetch() -> FakeFetch:
    return FakeFetch()


@pytest.fixture
def people(fetch: FakeFetch) -> BalancersPeople:
    return BalancersPeople(OIDC, fetch, lambda: NOW)


def test_a_balancers_padding_is_there() -> None:
    assert "=" in token()


def test_a_person_is_who_the_balancer_says(people: BalancersPeople) -> None:
    claims = {"sub": "u1", "email": "ann@example.com", "groups": ["operators", "cooks"]}
    found = asyncio.run(people.find(token(claims)))
    assert (found.name, found.means) == ("ann@example.com", "balancer")
    assert found.scopes == {"insights", "operations", "letters"}


def forged(change: Callable[[list[str]], None]) -> str:
    parts = token().split(".")
    change(parts)
    return ".".join(parts)


NONE = f"{part({'alg': 'none', 'kid': KEY_ID, 'signer': BALANCER, 'exp': NOW + 120})}.e30=."
INVALID = {
    "another's signature": token(private=OTHER),
    "another balancer": token(signer=f"{BALANCER}4"),
    "no signer": token(signer=None),
    "expired": token(exp=int(NOW)),
    "never expires": token(exp=None),
    "a text as time": token(exp="never"),
    "no algorithm": NONE,
    "another algorithm": token(alg="HS256"),
    "by the public key as a secret": jwt.encode(
        {"sub": "u1"}, "x" * 32, "HS256", {"kid": KEY_ID, "signer": BALANCER, "exp": NOW + 120}
    ),
    "an unknown key": token(kid="00000000-0000-0000-0000-000000000000"),
    "a path as key": token(kid="../../secrets"),
    "no key": token(kid=None),
    "other claims": forged(lambda parts: parts.__setitem__(1, part({"sub": "root"}))),
    "no signature": forged(lambda parts: parts.__setitem__(2, "")),
    "half of it": token()[:-30],
    "empty": "..",
    "nothing": "x",
    "no text": "\xff\xfe.\xff.\xff",
}


@pytest.mark.parametrize("sent", INVALID.values(), ids=INVALID)
def test_nobody_else_is_a_person(people: BalancersPeople, sent: str) -> None:
    with pytest.raises(Unidentified) as refusal:
        asyncio.run(people.find(sent))
    assert refusal.value.reason == "token"


def test_what_could_not_be_valid_fetches_no_key(people: BalancersPeople, fetch: FakeFetch) -> None:
    for sent in (token(signer="x"), token(exp=1), NONE, token(kid="../x"), "x"):
        with pytest.raises(Unidentified):
            asyncio.run(people.find(sent))
    assert fetch.fetched == []


def test_a_key_is_fetched_once_and_by_one_at_a_time(fetch: FakeFetch) -> None:
    async def scene() -> None:
        people = BalancersPeople(OIDC, fetch, lambda: NOW)
        await asyncio.gather(*(people.find(token()) for _ in range(20)))
        await people.find(token())
        assert fetch.fetched == [KEY_ID]

    play(scene)


def test_keys_that_are_kept_are_few(fetch: FakeFetch) -> None:
    async def scene() -> None:
        people = BalancersPeople(OIDC, fetch, lambda: NOW)
        fetch.keys = {f"{n}": pem() for n in range(3 * KEYS_KEPT)}
        for key_id in fetch.keys:
            await people.find(token(kid=key_id))
        assert len(people._known) == KEYS_KEPT

    play(scene)


def test_an_id_that_nobody_knows_is_asked_for_once_a_minute(fetch: FakeFetch) -> None:
    now = NOW
    people = BalancersPeople(OIDC, fetch, lambda: now)
    for later in (0, 1, UNKNOWN_SECONDS + 1):
        now = NOW + later
        with pytest.raises(Unidentified):
            asyncio.run(people.find(token(kid="unknown")))
    assert fetch.fetched == ["unknown"] * 2


def test_a_key_that_cannot_be_fetched_now_is_fetched_later(
    people: BalancersPeople, fetch: FakeFetch
) -> None:
    async def scene() -> None:
        fetch.away = True
        with pytest.raises(CannotTell):
            await people.find(token())
        fetch.away = False
        assert (await people.find(token())).name == "ann@example.com"

    play(scene)


def test_a_stream_of_a_person_has_an_end(fetch: FakeFetch) -> None:
    now = NOW
    people = BalancersPeople(OIDC, fetch, lambda: now)
    found = asyncio.run(people.find(token()))
    now = NOW + LONGEST_STREAM_SECONDS - 1  # far longer than a token: nobody is cut off each minute
    assert found.scopes_now() == found.scopes
    now = NOW + LONGEST_STREAM_SECONDS
    assert not found.scopes_now()


anything = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text() | st.sampled_from([*GRANTED.groups]),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=6,
)


@given(anything)
def test_whatever_a_claim_is_scopes_are_everybodys_and_the_groups(claim: Any) -> None:
    found = scopes_of({"groups": claim}, GRANTED)
    assert {"insights"} <= found <= {*SCOPES}
    listed = [claim] if isinstance(claim, str) else claim if isinstance(claim, list) else []
    assert ("sessions" in found) == ("analysts" in listed)


# --- at the door ---------------------------------------------------------------------------------


def test_a_person_reads_by_its_groups_and_a_key_is_asked_first(
    settings: Settings, store: FakeStore, feed: FakeFeed, people: BalancersPeople
) -> None:
    keys = following({"letters": key("letters", "letters")})
    app = create_app(settings, store, feed, keys, people=people)
    word = {"x-amzn-oidc-data": token()}
    with TestClient(app, base_url="https://api") as client:
        assert client.get("/v1/extent", headers=word).status_code == 200
        assert is_problem(client.get("/v1/status", headers=word), 403)
        who = client.get("/v1/login", headers=word).json()
        assert who == {"name": "ann@example.com", "means": "balancer", "scopes": ["insights"]}
        by_key = client.get("/v1/login", headers=word | bearer("letters")).json()
        assert by_key["name"] == "letters"
        assert client.get("/v1/login", headers=word | bearer("unknown")).status_code == 401
        invalid = client.get("/v1/extent", headers={"x-amzn-oidc-data": token(private=OTHER)})
        assert is_problem(invalid, 401)
        assert client.post("/v1/login", headers=word).status_code == 401  # has no key to keep
        client.post("/v1/login", headers=word | bearer("letters"))
        assert client.get("/v1/login", headers=word).json()["name"] == "letters"
        client.cookies.set("millrace_key", "one-that-has-ended")
        assert client.get("/v1/login", headers=word).json()["name"] == "ann@example.com"
    assert refused(app)["token"] == 1


def test_a_person_is_let_in_while_no_keys_are_known(
    settings: Settings, store: FakeStore, feed: FakeFeed, people: BalancersPeople, fetch: FakeFetch
) -> None:
    app = create_app(settings, store, feed, following(None), people=people)
    with TestClient(app, headers={"x-amzn-oidc-data": token()}) as client:
        fetch.away = True
        answer = client.get("/v1/extent")
        assert is_problem(answer, 503)
        assert "retry-after" in answer.headers
        fetch.away = False
        assert client.get("/v1/extent").status_code == 200


def test_without_that_setting_a_balancers_word_is_nothing(
    settings: Settings, store: FakeStore, feed: FakeFeed
) -> None:
    with TestClient(create_app(settings, store, feed)) as client:
        answer = client.get("/v1/extent", headers={"x-amzn-oidc-data": token()})
        assert is_problem(answer, 401)


@pytest.mark.parametrize(
    "change", [{"region": "a/b"}, {"balancer": "edge"}, {"scopes": {"everybody": ["all"]}}]
)
def test_a_setting_that_would_let_in_nobody_or_anybody_is_refused(change: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match=next(iter(change))):
        Oidc.model_validate(OIDC.model_dump() | change)
