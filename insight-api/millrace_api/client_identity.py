"""Who asks, for routes that wait in a lane."""

from typing import Annotated

from fastapi import Depends, Request
from starlette.types import Scope

from millrace_api.admission import Asker


def address_of(scope: Scope) -> str:
    """A client is an address."""
    return scope["client"][0] if scope["client"] else ""


async def asker_of(request: Request) -> Asker:
    return Asker(address_of(request.scope), request.app.state.admission)


AskerDep = Annotated[Asker, Depends(asker_of)]
