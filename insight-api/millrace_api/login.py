"""Browsers log in: a page can't send a header with everything that it asks, but a cookie.

The key comes in the header in which it comes otherwise, so that what checks a key is one thing.
Another site's page can't send that header here, nor does a browser send the cookie for one.
"""

from typing import Any

from fastapi import APIRouter, FastAPI, Request, Response
from pydantic import BaseModel, Field

from millrace_api.access import (
    ANYBODY,
    COOKIE,
    Means,
    ReaderDep,
    Refused,
    Unidentified,
    needs,
)
from millrace_api.identity import bearer_of

PATH = "/v1/login"

router = APIRouter(tags=["login"])


class WhoAsks(BaseModel):
    """Who asks, as this API knows it."""

    name: str = Field(examples=["dashboard"], description="Of the key, or of the person.")
    means: Means = Field(description="`cookie` is what `POST /v1/login` has set.")
    scopes: list[str] = Field(examples=[["insights"]], description="What it may read.")


class ReadsNothing(Refused):
    """The key is known, but none of its scopes is a reader's."""

    reason = "scope"


class ForeignPage(Refused):
    """Another site's page asks in its reader's name."""

    reason = "origin"


@router.get(PATH, dependencies=[needs()])
async def who_asks(response: Response, reader: ReaderDep) -> WhoAsks:
    """Whose key this is, and what it may read."""
    response.headers["Cache-Control"] = "no-store"
    return WhoAsks(name=reader.name, means=reader.means, scopes=sorted(reader.scopes))


@router.post(PATH, status_code=204, dependencies=[needs()])
async def log_in(request: Request, reader: ReaderDep) -> Response:
    """Have the key, sent as `Authorization: Bearer`, kept by this browser until it is closed.

    It is kept in a cookie that no script can read. 403 for a key that reads nothing.
    """
    refuse_foreign(request)
    secret = bearer_of(request.headers)
    if secret is None or reader.means != "bearer":
        raise Unidentified("no_key", "Send the key to log in with as `Authorization: Bearer KEY`.")
    if not reader.scopes:
        raise ReadsNothing("This key may read nothing: it has no scope.")
    answer = Response(status_code=204)
    answer.set_cookie(COOKIE, secret, **_attributes(request))
    return answer


@router.delete(PATH, status_code=204, dependencies=[ANYBODY])
async def log_out(request: Request) -> Response:
    """Have this browser forget its key."""
    refuse_foreign(request)
    answer = Response(status_code=204)
    answer.delete_cookie(COOKIE, **_attributes(request))
    return answer


def refuse_foreign(request: Request) -> None:
    """Browsers say whose page asks: all of them by `Origin`, by `Sec-Fetch-Site` where nobody can
    listen. Other clients have nobody's cookies, and say nothing."""
    site, origin = (request.headers.get(name) for name in ("sec-fetch-site", "origin"))
    if site is None:
        host = request.headers.get("host")
        is_ours = origin is None or origin.partition("://")[2] == host
    else:
        is_ours = site == "same-origin"
    if not is_ours:
        raise ForeignPage("Only a page of this address logs its reader in or out.")


def _attributes(request: Request) -> dict[str, Any]:
    """For as long as the browser runs; sent with nothing that another site has begun."""
    is_secret = request.url.scheme == "https"
    return {"path": "/", "httponly": True, "samesite": "strict", "secure": is_secret}


def install(app: FastAPI) -> None:
    app.include_router(router)
