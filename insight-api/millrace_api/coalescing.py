"""Who asks what is being answered already gets that answer.

Sixty open pages ask for the same week. While there is little to do each is answered for itself; the
longer an answer takes, the more of them wait for the same one. Nothing is kept: no answer was begun
before the one in progress.
"""

import asyncio
from collections.abc import Collection
from dataclasses import dataclass, field
from typing import Any

from fastapi import status
from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from millrace_api.access import READER, Reader
from millrace_api.shared import Shared

INSIGHTS = "/v1/"


@dataclass
class Answer:
    messages: list[Message] = field(default_factory=list)
    route: Any = None  # of the application, for who counts requests by it

    @property
    def is_ok(self) -> bool:
        return self.messages[0]["status"] == status.HTTP_200_OK

    async def keep(self, message: Message) -> None:
        self.messages.append(message)


class Coalesced:
    """Shares answers to GETs below /v1/ among readers of equal scopes, but for ``own`` paths: those
    without an end, and those about who asks.

    A refusal is one client's own: who waited for another's answer and would get that asks for
    himself.
    """

    def __init__(self, app: ASGIApp, own: Collection[str]) -> None:
        self._app = app
        self._own = own
        self._answers = Shared()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer = await self._shared(scope) if self._may_share(scope) else None
        if answer is None:
            await self._app(scope, receive, send)
            return
        scope["route"] = answer.route
        for message in answer.messages:
            await send({**message})  # whoever gets it adds headers of its own

    def _may_share(self, scope: Scope) -> bool:
        return (
            scope["type"] == "http"
            and scope["method"] == "GET"
            and scope["path"].startswith(INSIGHTS)
            and scope["path"] not in self._own
        )

    async def _shared(self, scope: Scope) -> Answer | None:
        """None if it is somebody else's refusal."""
        asked_by_me = False

        async def ask() -> Answer:
            nonlocal asked_by_me
            asked_by_me = True
            answer = Answer()
            await self._app(scope, _nothing_more(), answer.keep)
            answer.route = scope.get("route")
            return answer

        takes_gzip = "gzip" in Headers(scope=scope).get("accept-encoding", "")
        reader: Reader | None = scope.get(READER)
        scopes = reader.scopes if reader else None
        question = (scope["path"], scope["query_string"], takes_gzip, scopes)
        answer = await self._answers.ask(question, ask)
        return answer if asked_by_me or answer.is_ok else None


def _nothing_more() -> Receive:
    """A request without a body, of a client that stays: others wait for the answer, too."""
    bodies = iter([{"type": "http.request", "body": b"", "more_body": False}])

    async def receive() -> Message:
        for body in bodies:
            return body
        await asyncio.Event().wait()
        raise AssertionError("nobody sets that event")

    return receive
