"""Errors as RFC 9457 problem details: what is wrong, and what to do about it."""

import logging

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from fastapi.responses import JSONResponse

from millrace_api.models import Problem
from millrace_api.ranges import BadRange
from millrace_api.store import StoreUnavailable

log = logging.getLogger(__name__)

RETRY_AFTER_SECONDS = 2


class Busy(Exception):
    """Too many clients; the message says of what."""


def install(app: FastAPI) -> None:
    """Answer every expected error with a problem; what is left is a bug and gets a bare 500."""
    app.add_exception_handler(BadRange, _bad_range)
    app.add_exception_handler(RequestValidationError, _bad_parameters)
    app.add_exception_handler(StoreUnavailable, _store_unavailable)
    app.add_exception_handler(Busy, _busy)


def _bad_range(_: Request, error: BadRange) -> JSONResponse:
    return _problem(422, "Bad parameter", f"{error.parameter}: {error}", error.parameter)


def _bad_parameters(_: Request, error: RequestValidationError) -> JSONResponse:
    first = error.errors()[0]
    parameter = str(first["loc"][-1])
    return _problem(422, "Bad parameter", f"{parameter}: {first['msg']}", parameter)


def _store_unavailable(request: Request, error: StoreUnavailable) -> JSONResponse:
    log.warning("%s: store unavailable: %s", request.url.path, error)
    return _problem(503, "Store unavailable", "No quorum of the store answers; try again shortly.")


def _busy(_: Request, error: Busy) -> JSONResponse:
    return _problem(503, "Busy", str(error))


def _problem(status: int, title: str, detail: str, parameter: str | None = None) -> JSONResponse:
    problem = Problem(title=title, status=status, detail=detail, parameter=parameter)
    return JSONResponse(
        problem.model_dump(exclude_none=True),
        status_code=status,
        media_type="application/problem+json",
        headers={"Retry-After": str(RETRY_AFTER_SECONDS)} if status == 503 else None,
    )
