"""Finds who sends a request: by a key, or by the load balancer's word for a person."""

import asyncio
import logging
from collections.abc import Callable
from typing import Protocol

from starlette.datastructures import Headers
from starlette.requests import cookie_parser

from millrace_api.access import COOKIE, NOTHING_MORE, CannotTell, Means, Reader, Unidentified
from millrace_api.zookeeper import RegistryUnavailable
from millrace_shared.keys import Follower

log = logging.getLogger(__name__)

OF_A_PERSON = "x-amzn-oidc-data"
HOW = "Send `Authorization: Bearer KEY`; `millrace keys` has who gives you one."


class People(Protocol):
    async def find(self, token: str) -> Reader:
        """The person of whom a token tells. Raises Unidentified, CannotTell."""
        ...


class Readers:
    """Knows keys as ``keys`` follows them, and ``people`` where the load balancer tells of them.

    A key that is sent decides by itself. A browser's is asked before the balancer's word: somebody
    has typed it in to see more; one that has ended doesn't lock him out.
    """

    def __init__(self, keys: Follower, people: People | None = None) -> None:
        self._keys = keys
        self._people = people

    async def find(self, headers: Headers) -> Reader:
        """Raises Unidentified, CannotTell."""
        bearer = bearer_of(headers)
        cookie = cookie_of(headers) if bearer is None else None
        if reader := self._of_key(bearer, "bearer") or self._of_key(cookie, "cookie"):
            return reader
        token = headers.get(OF_A_PERSON) if bearer is None else None
        if self._people and token:
            return await self._people.find(token)
        if self._keys.keys is None:
            raise CannotTell("keys_unknown", "This API doesn't know any keys yet; try again soon.")
        if bearer is None and cookie is None:
            raise Unidentified("no_key", f"This needs a key. {HOW}")
        raise Unidentified("unknown_key", f"This key isn't known, or it has ended. {HOW}")

    def _of_key(self, secret: str | None, means: Means) -> Reader | None:
        found = self._keys.find(secret) if secret else None
        if not (secret and found):
            return None
        name, key = found
        return Reader(name, means, frozenset(key.scopes), lambda: self._scopes(secret))

    def _scopes(self, secret: str) -> frozenset[str]:
        found = self._keys.find(secret)
        return frozenset(found[1].scopes) if found else NOTHING_MORE


def bearer_of(headers: Headers) -> str | None:
    """The secret that a request was sent with; None if it has no such header."""
    scheme, _, secret = headers.get("authorization", "").partition(" ")
    return secret.strip() if scheme.lower() == "bearer" else None


def cookie_of(headers: Headers) -> str | None:
    return cookie_parser(headers.get("cookie", "")).get(COOKIE)


async def keep_looking(keys: Follower, every_seconds: float, looked: Callable[[], None]) -> None:
    """Follow the keys without an end. ``looked`` is told each time that ZooKeeper has answered."""
    is_away = False
    while True:
        try:
            await asyncio.to_thread(keys.look)
        except RegistryUnavailable as error:
            if not is_away:
                log.warning("going on with the keys that are known: %s", error)
            is_away = True
        else:
            is_away = False
            looked()
        await asyncio.sleep(every_seconds)
