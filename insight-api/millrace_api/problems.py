"""Errors as RFC 9457 problem details: what is wrong, and what to do about it."""

import logging
import math
from collections.abc import Callable, Mapping
from http import HTTPStatus
from uuid import uuid4

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from millrace_api.access import CannotTell, Lacking, Refused, Unidentified
from millrace_api.admission import AGAIN_SECONDS, RequestRejected, TooMany
from millrace_api.models import Problem
from millrace_api.prometheus import PrometheusUnavailable
from millrace_api.ranges import BadParameter
from millrace_api.store import StoreUnavailable, TooManyRows

log = logging.getLogger(__name__)

MEDIA_TYPE = "application/problem+json"
CHALLENGE = "WWW-Authenticate"  # RFC 6750


class NotFound(Exception):
    """There is nothing of that name; the message says what there is."""


def install(app: FastAPI) -> None:
    """Answer every expected error with a problem; what is left is a bug, see ``Unexpected``."""
    app.exception_handler(BadParameter)(_bad_range)
    app.exception_handler(RequestValidationError)(_bad_parameters)
    app.exception_handler(StoreUnavailable)(_store_unavailable)
    app.exception_handler(PrometheusUnavailable)(_prometheus_unavailable)
    app.exception_handler(RequestRejected)(_rejected)
    app.exception_handler(Refused)(_refused)
    app.exception_handler(NotFound)(_not_found)
    app.exception_handler(TooManyRows)(_too_many_rows)
    app.exception_handler(HTTPException)(_of_http)


async def _bad_range(_: Request, error: BadParameter) -> JSONResponse:
    return problem(422, "Bad parameter", f"{error.parameter}: {error}", parameter=error.parameter)


async def _bad_parameters(_: Request, error: RequestValidationError) -> JSONResponse:
    first = error.errors()[0]
    parameter = str(first["loc"][-1])
    return problem(422, "Bad parameter", f"{parameter}: {first['msg']}", parameter=parameter)


async def _store_unavailable(request: Request, error: StoreUnavailable) -> JSONResponse:
    log.warning("%s: store unavailable: %s", request.url.path, error)
    detail = "No quorum of the store answers; try again shortly."
    return problem(503, "Store unavailable", detail, retry_after_seconds=AGAIN_SECONDS)


async def _prometheus_unavailable(request: Request, error: PrometheusUnavailable) -> JSONResponse:
    log.warning("%s: %s", request.url.path, error)
    detail = f"No Prometheus answers ({error}). The runbook target-down says what to do."
    return problem(503, "No figures", detail, retry_after_seconds=AGAIN_SECONDS)


async def _not_found(_: Request, error: NotFound) -> JSONResponse:
    return problem(404, "Not found", str(error))


async def _too_many_rows(_: Request, __: TooManyRows) -> JSONResponse:
    detail = "This is more than one answer may read: ask for one key, or for a shorter range."
    return problem(422, "Too much for one answer", detail)


async def _rejected(_: Request, error: RequestRejected) -> JSONResponse:
    return rejection(error)


async def _refused(request: Request, error: Refused) -> JSONResponse:
    """What a route finds out itself; `middleware.Guarded` has seen to the rest."""
    request.app.state.metrics.refused(error.reason)
    return refusal(error)


def refusal(error: Refused) -> JSONResponse:
    """401 for somebody unknown, 403 for who may not have it; 503 while that can't be told."""
    if isinstance(error, CannotTell):
        return problem(503, "Nobody can be let in", str(error), retry_after_seconds=AGAIN_SECONDS)
    if isinstance(error, Unidentified):
        challenge = "Bearer" if error.reason == "no_key" else 'Bearer error="invalid_token"'
        return problem(401, "No valid key", str(error), headers={CHALLENGE: challenge})
    scope = error.scope if isinstance(error, Lacking) else None
    challenge = f'Bearer error="insufficient_scope", scope="{scope}"'
    headers = {CHALLENGE: challenge} if scope else None
    return problem(403, "Not with this key", str(error), scope=scope, headers=headers)


def rejection(error: RequestRejected) -> JSONResponse:
    """503 for what the server can't do now, 429 for what this client asks too much."""
    status, title = (429, "Too many requests") if isinstance(error, TooMany) else (503, "Busy")
    return problem(status, title, str(error), retry_after_seconds=error.retry_after_seconds)


async def _of_http(_: Request, error: HTTPException) -> JSONResponse:
    """What the framework refuses: no such path, no such method."""
    details = {404: "Nothing is here; /docs lists what is.", 405: "What is here is only read."}
    return problem(
        error.status_code,
        HTTPStatus(error.status_code).phrase,
        details.get(error.status_code, error.detail),
        headers=error.headers,
    )


def problem(
    status: int,
    title: str,
    detail: str,
    *,
    parameter: str | None = None,
    scope: str | None = None,
    instance: str | None = None,
    retry_after_seconds: float = 0,
    headers: Mapping[str, str] | None = None,
) -> JSONResponse:
    told = Problem(
        title=title,
        status=status,
        detail=detail,
        parameter=parameter,
        scope=scope,
        instance=instance,
    )
    again = {"Retry-After": f"{math.ceil(retry_after_seconds)}"} if retry_after_seconds else {}
    return JSONResponse(
        told.model_dump(exclude_none=True),
        status_code=status,
        media_type=MEDIA_TYPE,
        headers={**again, **(headers or {})},
    )


class Unexpected:
    """Answers 500 for what nobody foresaw. Its ``instance`` is in the log, with what happened."""

    def __init__(self, app: ASGIApp, failed: Callable[[str], None]) -> None:
        """``failed`` is told of each."""
        self._app = app
        self._failed = failed

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        has_begun = False

        async def noticed(message: Message) -> None:
            nonlocal has_begun
            has_begun = True
            await send(message)

        try:
            await self._app(scope, receive, noticed)
        except Exception:
            if scope["type"] != "http" or has_begun:
                raise  # the server hangs up, which tells the client that something is missing
            instance = uuid4().urn
            self._failed("requests")
            log.exception("%s: %s %s", instance, scope["method"], scope["path"])
            detail = "This is a bug of the API's. Its log says more, under this `instance`."
            answer = problem(500, "Unexpected error", detail, instance=instance)
            await answer(scope, receive, send)
