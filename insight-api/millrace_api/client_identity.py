"""Who sent a request, for routes that wait in a lane."""

from typing import Annotated

from fastapi import Depends, Request
from starlette.types import Scope

from millrace_api.admission import Client


def address_of(scope: Scope) -> str:
    """A client is an address."""
    return scope["client"][0] if scope["client"] else ""


async def client_of(request: Request) -> Client:
    return Client(address_of(request.scope), request.app.state.admission)


ClientDep = Annotated[Client, Depends(client_of)]
