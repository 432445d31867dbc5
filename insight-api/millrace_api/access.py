"""What a route asks of its readers: a key with scopes, any key, or nothing.

Each route says so where it is declared, by `needs` or `ANYBODY`, and its documentation has it from
there. `middleware.Guarded` holds every request to it, before anything else is done for it.
"""

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

from fastapi import Depends, Request, Security
from fastapi.params import Depends as Dependency
from fastapi.params import Security as Credentials
from fastapi.routing import RouteContext, iter_route_contexts
from fastapi.security import APIKeyCookie, HTTPBearer
from fastapi.staticfiles import StaticFiles
from starlette.routing import BaseRoute, Match
from starlette.types import Scope

from millrace_shared.keys import SCOPES

COOKIE = "millrace_key"
READER = "millrace.reader"  # in the scope of a request: who sent it
NOTHING_MORE: frozenset[str] = frozenset()

Means = Literal["bearer", "cookie", "balancer"]


class Refused(Exception):
    """Who asks may not have it. ``reason`` is for who counts refusals."""

    reason: str


class Unidentified(Refused):
    """Nobody who is known asks."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


class Lacking(Refused):
    """A key, or a person, without a scope."""

    reason = "scope"

    def __init__(self, scope: str) -> None:
        super().__init__(f"This needs a key with the scope {scope!r}.")
        self.scope = scope


class Undeclared(Refused):
    """The route doesn't say what it asks of its readers: a bug, by which nobody gets in."""

    reason = "undeclared"


class CannotTell(Refused):
    """Whether somebody may have it isn't known just now."""

    def __init__(self, reason: str, message: str) -> None:
        super().__init__(message)
        self.reason = reason


@dataclass(frozen=True)
class Reader:
    """Who asks.

    Attributes:
        name: of the key, or of the person.
        means: by which it showed who it is.
        scopes: what it may read.
        scopes_now: the same at a later time, for an answer that goes on until then.
    """

    name: str
    means: Means
    scopes: frozenset[str]
    scopes_now: Callable[[], frozenset[str]]

    def needs(self, scope: str) -> None:
        """Raises Lacking."""
        if scope not in self.scopes:
            raise Lacking(scope)


async def _shown(
    _bearer: Annotated[
        object,
        Depends(
            HTTPBearer(scheme_name="bearer", description="A key's secret.", auto_error=False),
        ),
    ],
    _cookie: Annotated[
        object,
        Depends(
            APIKeyCookie(
                scheme_name="cookie",
                name=COOKIE,
                description="Set by `POST /v1/login`, for browsers.",
                auto_error=False,
            )
        ),
    ],
) -> None:
    """Nothing: these are for the documentation, `middleware.Guarded` has seen to it already."""


async def _anybody() -> None:
    """Nothing: it is there to be found."""


ANYBODY = Depends(_anybody)


class PublicFiles(StaticFiles):
    """Files that anybody may have: they have no data."""


def needs(*scopes: str) -> Credentials:
    """For ``dependencies`` of a route: a key with these scopes; with none of them, any key."""
    if unknown := {*scopes} - {*SCOPES}:
        raise ValueError(f"no such scope: {', '.join(sorted(unknown))}")
    declared = Security(_shown, scopes=scopes)
    assert isinstance(declared, Credentials)
    return declared


def needed(routes: Sequence[BaseRoute], scope: Scope) -> frozenset[str] | None:
    """The scopes that a request's route asks for; None if anybody may have its answer.

    What is nowhere needs a key, too: who has none learns nothing of what there is. Raises
    Undeclared.
    """
    found = _found(routes, scope)
    return NOTHING_MORE if found is None else declared(found)


def declared(route: RouteContext) -> frozenset[str] | None:
    """The scopes that a route asks for; None for nothing. Raises Undeclared."""
    if isinstance(getattr(route.route, "app", None), PublicFiles):
        return None
    dependencies: Iterable[Dependency] = getattr(route, "dependencies", ())
    for one in dependencies:
        if one.dependency is _anybody:
            return None
        if isinstance(one, Credentials) and one.dependency is _shown:
            return frozenset(one.scopes or ())
    raise Undeclared(f"{route.path} doesn't say who may read it: a bug of the API's.")


def _found(routes: Sequence[BaseRoute], scope: Scope) -> RouteContext | None:
    """The route that would answer, if only that it has no such method."""
    partial = None
    for route in iter_route_contexts(routes):
        match, _ = route.matches(scope)
        if match is Match.FULL:
            return route
        if match is Match.PARTIAL and partial is None:
            partial = route
    return partial


async def reader_of(request: Request) -> Reader:
    reader: Reader = request.scope[READER]
    return reader


ReaderDep = Annotated[Reader, Depends(reader_of)]
