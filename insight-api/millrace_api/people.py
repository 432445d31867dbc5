"""People whom the load balancer has authenticated (OIDC), and tells of in each request.

It signs what it says, ES256; the key is at an address of the region, by its id. Who could reach
this API by another way could write such a header, too: only the signature, by our own balancer and
still valid, makes a person of it. See "Authenticate users using an Application Load Balancer" of
AWS' documentation.
"""

import asyncio
import json
import re
import urllib.error
import urllib.request
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import jwt
from cachetools import LRUCache, TTLCache

from millrace_api.access import NOTHING_MORE, CannotTell, Reader, Unidentified
from millrace_api.settings import Oidc, OidcScopes
from millrace_api.shared import Shared

ALGORITHM = "ES256"
KEY_ID = re.compile(r"[A-Za-z0-9-]{1,64}")
KEYS_URL = "https://public-keys.auth.elb.{region}.amazonaws.com/{key_id}"
FETCH_SECONDS = 2.0
LONGEST_KEY_BYTES = 10_000
KEYS_KEPT = 16  # a balancer changes its key now and then
# Ids for which there is no key: anybody can make them up, and each is asked for once a minute.
UNKNOWN_KEPT, UNKNOWN_SECONDS = 1000, 60.0
# How long an answer without an end goes on before the balancer is to say again who reads it.
LONGEST_STREAM_SECONDS = 3600.0

Fetch = Callable[[str], str]


class NoSuchKey(Exception):
    """The balancers of the region have no key of that id."""


class BalancersPeople:
    """``fetch`` gets a public key by its id, as PEM; it raises NoSuchKey or OSError, and doesn't
    wait for long. ``now``: seconds since 1970."""

    def __init__(self, settings: Oidc, fetch: Fetch, now: Callable[[], float]) -> None:
        self._settings = settings
        self._fetch = fetch
        self._now = now
        self._known: LRUCache[str, str] = LRUCache(KEYS_KEPT)
        self._unknown: TTLCache[str, None] = TTLCache(UNKNOWN_KEPT, UNKNOWN_SECONDS, timer=now)
        self._asked = Shared()
        self._place = asyncio.Semaphore(1)

    async def find(self, token: str) -> Reader:
        """Raises Unidentified; CannotTell while the key can't be fetched."""
        try:
            claims = json.loads(self._verified(token, await self._key(self._checked(token))))
        except (jwt.PyJWTError, ValueError) as error:
            raise _invalid(str(error)) from None
        if not isinstance(claims, dict):
            raise _invalid("it has no claims")
        scopes = scopes_of(claims, self._settings.scopes)
        until = self._now() + LONGEST_STREAM_SECONDS
        return Reader(
            name=str(claims.get("email") or claims.get("sub")),
            means="balancer",
            scopes=scopes,
            scopes_now=lambda: scopes if self._now() < until else NOTHING_MORE,
        )

    def _checked(self, token: str) -> str:
        """The id of the key that a token is signed with. What it says is true only once the
        signature has been verified: until then, this spares that effort."""
        header = jwt.get_unverified_header(token)
        if header.get("alg") != ALGORITHM:
            raise _invalid(f"its algorithm isn't {ALGORITHM}")
        if header.get("signer") != self._settings.balancer:
            raise _invalid("another load balancer has signed it")
        expires = header.get("exp")
        if not isinstance(expires, int | float) or self._now() >= expires:
            raise _invalid("it has expired")
        key_id = header.get("kid")
        if not isinstance(key_id, str) or not KEY_ID.fullmatch(key_id):
            raise _invalid("it doesn't say by which key")
        return key_id

    def _verified(self, token: str, key: str) -> bytes:
        """What a token says. Its times stand in the header, which is signed as well."""
        content: bytes = jwt.PyJWS().decode(token, key, algorithms=[ALGORITHM])
        return content

    async def _key(self, key_id: str) -> str:
        if key_id not in self._known and key_id not in self._unknown:
            await self._asked.ask(key_id, partial(self._ask, key_id))
        if (key := self._known.get(key_id)) is None:
            raise _invalid("the region's load balancers have no key of its id")
        return key

    async def _ask(self, key_id: str) -> None:
        """One at a time, whoever asks for whichever."""
        async with self._place:
            try:
                self._known[key_id] = await asyncio.to_thread(self._fetch, key_id)
            except NoSuchKey:
                self._unknown[key_id] = None
            except OSError as error:
                raise CannotTell(
                    "token",
                    "The load balancer's public key can't be fetched, so nobody is let in by it;"
                    f" try again soon, or send a key ({error}).",
                ) from error


def scopes_of(claims: Mapping[str, Any], granted: OidcScopes) -> frozenset[str]:
    """What a person may read: everybody's, and that of each group that the claim lists."""
    told = claims.get(granted.groups_claim)
    groups = [told] if isinstance(told, str) else told if isinstance(told, list) else []
    of_groups = (granted.groups.get(one, []) for one in groups if isinstance(one, str))
    return frozenset(granted.everybody).union(*of_groups)


def fetch_from(region: str) -> Fetch:
    def fetch(key_id: str) -> str:
        url = KEYS_URL.format(region=region, key_id=key_id)
        try:
            with urllib.request.urlopen(url, timeout=FETCH_SECONDS) as answer:
                content: bytes = answer.read(LONGEST_KEY_BYTES)
        except urllib.error.HTTPError as error:
            if error.code in (403, 404):
                raise NoSuchKey(key_id) from None
            raise
        return content.decode(errors="replace")

    return fetch


def _invalid(why: str) -> Unidentified:
    return Unidentified(
        "token", f"The load balancer's word for you isn't valid: {why}. Sign in again."
    )
