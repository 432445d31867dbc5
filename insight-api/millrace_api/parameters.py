"""Query parameters of all routes: none is given twice, and none that nobody reads is taken."""

from collections import Counter
from collections.abc import Callable, Iterator
from typing import Annotated, Any, TypeVar

from fastapi import Query, Request
from fastapi.dependencies.models import Dependant

from millrace_api.ranges import BadParameter

LONGEST_NAME = 60  # of one that an answer repeats

# Texts, of which `ranges` makes moments: what is wrong with one is said in its words.
MOMENT = {"format": "date-time"}
From = Annotated[
    str,
    Query(
        alias="from",
        description="Start, included.",
        examples=["2015-05-17T10:00:00Z"],
        json_schema_extra=MOMENT,
    ),
]
To = Annotated[
    str,
    Query(
        alias="to",
        description="End, excluded.",
        examples=["2015-05-18T10:00:00Z"],
        json_schema_extra=MOMENT,
    ),
]
Asks = TypeVar("Asks", bound=Callable[..., Any])


def takes_columns(dependency: Asks) -> Asks:
    """Marks one that reads, and checks, parameters that only the job of the path has."""
    dependency.takes_columns = True  # type: ignore[attr-defined]
    return dependency


async def refuse_others(request: Request) -> None:
    """Who misspells a parameter would get an answer to another question than he asked."""
    given = Counter(name for name, _ in request.query_params.multi_items())
    for name, times in given.items():
        if times > 1:
            raise refused(name, "is given twice")
    asked = _all_of(request.scope["route"].dependant)
    if any(hasattr(one.call, "takes_columns") for one in asked):
        return
    known = declared(request)
    for name in given.keys() - known:
        there_are = f"this takes {', '.join(sorted(known))}" if known else "this takes none"
        raise refused(name, f"is no parameter here; {there_are}")


def refused(name: str, why: str) -> BadParameter:
    """For a parameter that the client has named, at whatever length."""
    return BadParameter(name[:LONGEST_NAME], why)


def declared(request: Request) -> set[str]:
    """Those of a route itself, by their names in the query."""
    asked = _all_of(request.scope["route"].dependant)
    return {parameter.alias for one in asked for parameter in one.query_params}


def _all_of(dependant: Dependant) -> Iterator[Dependant]:
    yield dependant
    for one in dependant.dependencies:
        yield from _all_of(one)
