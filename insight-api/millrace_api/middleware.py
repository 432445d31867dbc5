"""What is the same for all answers, whatever the route: headers, validation, limits. Pure ASGI."""

import asyncio
import hashlib
from collections.abc import Callable, Collection, Sequence
from functools import cache
from pathlib import Path

from starlette.datastructures import Headers, MutableHeaders
from starlette.responses import HTMLResponse, Response
from starlette.routing import BaseRoute
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from starlette.websockets import WebSocketClose

from millrace_api import access, problems
from millrace_api.access import Refused
from millrace_api.admission import RateLimit, TooMany
from millrace_api.client_identity import address_of
from millrace_api.identity import Readers
from millrace_api.problems import CHALLENGE

KEY_PAGE = Path(__file__).with_name("page") / "key.html"
# Pages, their scripts and styles are files of ours, and ask nobody else; the documentation's viewer
# has small pictures in its style. No other page may show one of these in a frame.
POLICY = "; ".join(
    (
        "default-src 'none'",
        "script-src 'self'",
        "style-src 'self'",
        "img-src 'self' data:",
        "connect-src 'self'",
        "base-uri 'none'",
        "form-action 'none'",
        "frame-ancestors 'none'",
    )
)
SECURITY = {
    "Content-Security-Policy": POLICY,
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
}
OF_A_BODY = ("content-length", "content-type", "content-encoding")


class HeadAsGet:
    """Answers HEAD wherever there is a GET: as that, without the body."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["method"] != "HEAD":
            await self._app(scope, receive, send)
            return
        answered = asyncio.Event()

        async def headers_alone(message: Message) -> None:
            if message["type"] == "http.response.start":
                await send(message)
                await send({"type": "http.response.body", "body": b""})
                answered.set()

        async def leaving() -> Message:
            """A stream, which has no end of its own, ends as if its reader had hung up."""
            await answered.wait()
            return {"type": "http.disconnect"}

        await self._app({**scope, "method": "GET"}, leaving, headers_alone)


class AnswerHeaders:
    """Gives every answer the headers of security, and says who may keep it.

    What has a tag may be kept, and is asked for again with it each time: nothing is final for ever,
    since an operator may correct a row. Anything else, such as a refusal, isn't kept.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                headers.update(SECURITY)
                headers.setdefault("Cache-Control", "no-cache" if "etag" in headers else "no-store")
            await send(message)

        await self._app(scope, receive, with_headers)


class RateLimited:
    """Refuses who asks too often before anything is done for them. Health checks are free.

    The refusal comes after a pause: who asks again as soon as there is an answer, and reads no
    ``Retry-After``, would have the processor busy with refusals.
    """

    def __init__(
        self, app: ASGIApp, limit: RateLimit, pause_seconds: float, free: Collection[str]
    ) -> None:
        self._app = app
        self._limit = limit
        self._pause_seconds = pause_seconds
        self._free = free

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer = self._app
        if scope["type"] == "http" and scope["path"] not in self._free:
            try:
                self._limit.admit(address_of(scope))
            except TooMany as error:
                await asyncio.sleep(self._pause_seconds)
                answer = problems.rejection(error)
        await answer(scope, receive, send)


class Guarded:
    """Lets a request in to whom its route is for, before anything is done or shared for it.

    ``refused`` is told of the reason of each refusal. Who comes by a browser's address line is
    refused by a page, on which a key can be typed in.
    """

    def __init__(
        self,
        app: ASGIApp,
        routes: Sequence[BaseRoute],
        readers: Readers,
        refused: Callable[[str], None],
    ) -> None:
        self._app = app
        self._routes = routes
        self._readers = readers
        self._refused = refused

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "websocket":  # there is none, and one to come has to be seen to here
            await WebSocketClose()(scope, receive, send)
            return
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        try:
            scopes = access.needed(self._routes, scope)
            if scopes is not None:
                reader = await self._readers.find(Headers(scope=scope))
                for one in sorted(scopes):
                    reader.needs(one)
                scope[access.READER] = reader
        except Refused as error:
            self._refused(error.reason)
            await self._refusal(error, scope)(scope, receive, _one_readers(send))
            return
        await self._app(scope, receive, send if scopes is None else _one_readers(send))

    def _refusal(self, error: Refused, scope: Scope) -> Response:
        answer = problems.refusal(error)
        if "text/html" not in Headers(scope=scope).get("accept", ""):
            return answer
        challenge = {CHALLENGE: answer.headers[CHALLENGE]} if CHALLENGE in answer.headers else {}
        return HTMLResponse(_key_page(), answer.status_code, challenge)


@cache  # another version of it comes with another start of the API
def _key_page() -> str:
    return KEY_PAGE.read_text()


def _one_readers(send: Send) -> Send:
    """An answer that is for who has asked, and for nobody who asks later with another key."""

    async def kept_apart(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            headers.add_vary_header("Authorization, Cookie")
            if "etag" in headers:
                headers.setdefault("Cache-Control", "private, no-cache")
        await send(message)

    return kept_apart


class Validated:
    """Answers 304 to who has the same already, as its tag says."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        known = Headers(scope=scope).get("if-none-match") if scope["type"] == "http" else None
        if known is None:
            await self._app(scope, receive, send)
            return
        is_known = False

        async def shortened(message: Message) -> None:
            nonlocal is_known
            if message["type"] == "http.response.start" and message["status"] == 200:
                headers = MutableHeaders(raw=[*message["headers"]])
                is_known = _names(known, headers.get("etag"))
                if is_known:
                    for name in OF_A_BODY:
                        del headers[name]
                    message = {**message, "status": 304, "headers": headers.raw}
            elif is_known:
                message = {**message, "body": b""}
            await send(message)

        await self._app(scope, receive, shortened)


class Tagged:
    """Gives answers a tag of their content, which is the same on every edge host.

    Tags are weak: what is compressed later has the same. What says by itself that it isn't kept,
    such as a stream, has none.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        start: Message | None = None
        body: list[bytes] = []

        async def tagged(message: Message) -> None:
            nonlocal start
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                if "etag" in headers:
                    headers["ETag"] = f"W/{headers['etag'].removeprefix('W/')}"
                if message["status"] == 200 and not {"etag", "cache-control"} & {*headers}:
                    start = message  # until its content is there
                else:
                    await send(message)
            elif start is None:
                await send(message)
            else:
                body.append(message.get("body", b""))
                if not message.get("more_body", False):
                    content = b"".join(body)
                    MutableHeaders(scope=start)["ETag"] = f'W/"{_digest(content)}"'
                    await send(start)
                    await send({"type": "http.response.body", "body": content})

        await self._app(scope, receive, tagged)


def _names(known: str, tag: str | None) -> bool:
    """Whether the tags that a client has, or ``*``, include this one."""
    if tag is None:
        return False
    theirs = {one.strip().removeprefix("W/") for one in known.split(",")}
    return bool({"*", tag.removeprefix("W/")} & theirs)


def _digest(content: bytes) -> str:
    return hashlib.blake2b(content, digest_size=12).hexdigest()
