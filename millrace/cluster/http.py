"""A service's hosts over HTTP as one: whichever gives the answer."""

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import httpx

from millrace.cluster.doors import Credentials

Accept = Callable[[httpx.Response], bool]


class Unanswered(Exception):
    """No host gave an answer that was accepted; says of each what it did instead.

    ``retry_after_seconds`` is the soonest that one of them asked to be asked again, if any did.
    """

    def __init__(self, message: str, retry_after_seconds: float | None = None) -> None:
        super().__init__(message)
        self.retry_after_seconds = retry_after_seconds


def is_ok(answer: httpx.Response) -> bool:
    return answer.status_code == httpx.codes.OK


class AnyHost:
    """Asks the host that answered last, and at once the others when it doesn't any more.

    Args:
        addresses: ``host:port`` each.
        seconds: how long one host may take for its answer, and for its connection.
        accept: which answers are one; a standby may give others.
        credentials: where TLS is spoken, and a key is asked for.

    May be used by several threads.
    """

    def __init__(
        self,
        addresses: Sequence[str],
        seconds: float,
        connect_seconds: float | None = None,
        accept: Accept = is_ok,
        credentials: Credentials | None = None,
    ) -> None:
        scheme = "https" if credentials else "http"
        self.urls = [f"{scheme}://{address}" for address in addresses]
        self._accept = accept
        timeout = httpx.Timeout(seconds, connect=connect_seconds or seconds)
        self._client = httpx.Client(
            timeout=timeout,
            verify=credentials.context if credentials else True,
            headers=credentials.headers if credentials else None,
        )
        self._answering = 0

    def get(self, path: str, /, **parameters: Any) -> httpx.Response:
        return self.ask("GET", path, parameters)

    def ask(self, method: str, path: str, parameters: dict[str, Any]) -> httpx.Response:
        """The first accepted answer; Unanswered when no host gives one."""
        reasons = []
        pauses = []
        first = self._answering
        for number in range(first, first + len(self.urls)):
            url = self.urls[number % len(self.urls)] + path
            try:
                answer = self._client.request(method, url, params=parameters)
            except httpx.HTTPError as error:
                reasons.append(f"{url}: {type(error).__name__}: {error}")
                continue
            if self._accept(answer):
                self._answering = number % len(self.urls)
                return answer
            reasons.append(f"{url}: {answer.status_code} {answer.text[:200]}")
            if (pause := answer.headers.get("retry-after", "")).isdecimal():
                pauses.append(float(pause))
        raise Unanswered("\n".join(reasons), min(pauses, default=None))

    def fetch(self, url: str) -> bytes:
        """Returns what one certain host has. Raises Unanswered when it doesn't give it."""
        try:
            return self._client.get(url).raise_for_status().content
        except httpx.HTTPError as error:
            raise Unanswered(f"{url}: {type(error).__name__}: {error}") from None

    def close(self) -> None:
        self._client.close()


@contextmanager
def any_host(
    addresses: Sequence[str],
    seconds: float,
    connect_seconds: float | None = None,
    credentials: Credentials | None = None,
) -> Iterator[AnyHost]:
    """Opens connections, and closes them in the end."""
    hosts = AnyHost(addresses, seconds, connect_seconds, credentials=credentials)
    try:
        yield hosts
    finally:
        hosts.close()
