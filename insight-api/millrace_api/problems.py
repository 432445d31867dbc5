"""Errors as RFC 9457 problem details: what is wrong, and what to do about it."""

import logging
import math

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse

from millrace_api.admission import AGAIN_SECONDS, RequestRejected, TooMany
from millrace_api.models import Problem
from millrace_api.prometheus import PrometheusUnavailable
from millrace_api.ranges import BadRange
from millrace_api.store import StoreUnavailable, TooManyRows

log = logging.getLogger(__name__)


class NotFound(Exception):
    """There is nothing of that name; the message says what there is."""


def install(app: FastAPI) -> None:
    """Answer every expected error with a problem; what is left is a bug and gets a bare 500."""
    app.exception_handler(BadRange)(_bad_range)
    app.exception_handler(RequestValidationError)(_bad_parameters)
    app.exception_handler(StoreUnavailable)(_store_unavailable)
    app.exception_handler(PrometheusUnavailable)(_prometheus_unavailable)
    app.exception_handler(RequestRejected)(_refused)
    app.exception_handler(NotFound)(_not_found)
    app.exception_handler(TooManyRows)(_too_many_rows)


def _bad_range(_: Request, error: BadRange) -> JSONResponse:
    return _problem(422, "Bad parameter", f"{error.parameter}: {error}", error.parameter)


def _bad_parameters(_: Request, error: RequestValidationError) -> JSONResponse:
    first = error.errors()[0]
    parameter = str(first["loc"][-1])
    return _problem(422, "Bad parameter", f"{parameter}: {first['msg']}", parameter)


def _store_unavailable(request: Request, error: StoreUnavailable) -> JSONResponse:
    log.warning("%s: store unavailable: %s", request.url.path, error)
    detail = "No quorum of the store answers; try again shortly."
    return _problem(503, "Store unavailable", detail, retry_after_seconds=AGAIN_SECONDS)


def _prometheus_unavailable(request: Request, error: PrometheusUnavailable) -> JSONResponse:
    log.warning("%s: %s", request.url.path, error)
    detail = f"No Prometheus answers ({error}). The runbook target-down says what to do."
    return _problem(503, "No figures", detail, retry_after_seconds=AGAIN_SECONDS)


def _not_found(_: Request, error: NotFound) -> JSONResponse:
    return _problem(404, "Not found", str(error))


def _too_many_rows(_: Request, __: TooManyRows) -> JSONResponse:
    detail = "This is more than one answer may read: ask for one key, or for a shorter range."
    return _problem(422, "Too much for one answer", detail)


def _refused(_: Request, error: RequestRejected) -> JSONResponse:
    return refusal(error)


def refusal(error: RequestRejected) -> JSONResponse:
    """503 for what the server can't do now, 429 for what this client asks too much."""
    status, title = (429, "Too many requests") if isinstance(error, TooMany) else (503, "Busy")
    return _problem(status, title, str(error), retry_after_seconds=error.retry_after_seconds)


def _problem(
    status: int,
    title: str,
    detail: str,
    parameter: str | None = None,
    retry_after_seconds: float = 0,
) -> JSONResponse:
    problem = Problem(title=title, status=status, detail=detail, parameter=parameter)
    return JSONResponse(
        problem.model_dump(exclude_none=True),
        status_code=status,
        media_type="application/problem+json",
        headers={"Retry-After": str(math.ceil(retry_after_seconds))} if retry_after_seconds else {},
    )
