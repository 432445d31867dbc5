"""The API's own documentation: an OpenAPI document with the jobs' rows, and a page that shows it.

The page's scripts come from here, and none of them stands in the page: neither is the Internet
needed, nor an exception from the policy that browsers are given.
"""

import asyncio
import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import fastapi_offline
from fastapi import FastAPI, Request
from fastapi.openapi.utils import get_openapi
from fastapi.responses import FileResponse, Response

from millrace_api import models, problems
from millrace_api.access import ANYBODY, PublicFiles
from millrace_api.declared import GENERIC
from millrace_api.kinds import Kind
from millrace_api.outputs import Catalogue, Output, Outputs
from millrace_api.shared import Shared

PAGE = Path(__file__).with_name("page") / "docs.html"
VIEWER = Path(fastapi_offline.__file__).with_name("static")
JSON_TYPES = {"int": "integer", "bigint": "integer", "double": "number", "boolean": "boolean"}
JSON_FORMATS = {"bigint": "int64", "date": "date", "timestamp": "date-time"}
AGAIN = {
    "Retry-After": {"description": "Seconds.", "schema": {"type": "integer", "minimum": 1}},
}
CHALLENGE = {
    problems.CHALLENGE: {"description": "As in RFC 6750.", "schema": {"type": "string"}},
}
# Of every call; those of things with names add that there is none.
RESPONSES: dict[int | str, dict[str, Any]] = {
    304: {"description": "You have it already, as `If-None-Match` says."},
    401: {
        "model": models.Problem,
        "description": "No key, or none that is known.",
        "headers": CHALLENGE,
    },
    403: {
        "model": models.Problem,
        "description": "The key lacks a scope; says which.",
        "headers": CHALLENGE,
    },
    422: {"model": models.Problem, "description": "A parameter is wrong; says which."},
    429: {
        "model": models.Problem,
        "description": "You ask too much; see `Retry-After`.",
        "headers": AGAIN,
    },
    500: {"model": models.Problem, "description": "A bug; its log says more."},
    503: {
        "model": models.Problem,
        "description": "Try again after `Retry-After`.",
        "headers": AGAIN,
    },
}


class Documentation:
    """The document as text, made once for what the jobs say of their rows."""

    def __init__(self, app: FastAPI, catalogue: Catalogue) -> None:
        self._app = app
        self._catalogue = catalogue
        self._made_of: Outputs | None = None
        self._text = b""
        self._making = Shared()

    async def text(self) -> bytes:
        outputs = self._catalogue.outputs
        if self._made_of is not outputs:
            self._text = await self._making.ask(id(outputs), lambda: self._make(outputs))
            self._made_of = outputs
        return self._text

    async def _make(self, outputs: Outputs) -> bytes:
        """On a thread: it takes as long as hundreds of answers."""
        return await asyncio.to_thread(lambda: json.dumps(document(self._app, outputs)).encode())


def document(app: FastAPI, outputs: Outputs) -> dict[str, Any]:
    """With a path for each job, and for each way of asking for its sessions."""
    made = get_openapi(
        title=app.title, version=app.version, description=app.description, routes=app.routes
    )
    paths = made["paths"]
    below = [path.removeprefix(GENERIC) for path in paths if path.startswith(f"{GENERIC}/")]
    answer = made["components"]["schemas"]["JobRows"]
    for output in outputs.usable.values():
        rows = _operation(paths[GENERIC]["get"], output, "/rows")
        if output.sessions:
            rows["security"] = _with_scope(rows["security"], "sessions")
        paths[f"/v1/jobs/{output.job}"] = {"get": _with_rows(rows, answer, output)}
        for name in below if output.sessions else []:
            operation = _operation(paths[GENERIC + name]["get"], output, name)
            paths[f"/v1/jobs/{output.job}{name}"] = {"get": operation}
    for response in _refusals(made):
        [content] = response["content"].values()
        response["content"] = {problems.MEDIA_TYPE: content}
    return made


def _refusals(made: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """Answers that are problem details, each once: jobs' operations share those of the generic."""
    seen = set()
    operations = (one for path in made["paths"].values() for one in path.values())
    for operation in operations:
        for status, response in operation["responses"].items():
            if int(status) >= 400 and id(response) not in seen:
                seen.add(id(response))
                yield response


def _operation(generic: dict[str, Any], output: Output, name: str) -> dict[str, Any]:
    """The generic route, as this job's: its summary, and its key as parameters."""
    own = [one for one in generic["parameters"] if one["name"] != "job"]
    keys = [
        {"name": name, "in": "query", "required": False, "schema": _schema(kind)}
        for name, kind in output.key.items()
    ]
    return generic | {
        "summary": output.summary,
        "operationId": f"{name.removeprefix('/')}_of_{output.job}",
        "parameters": [*own, *keys],
    }


def _with_rows(operation: dict[str, Any], answer: dict[str, Any], output: Output) -> dict[str, Any]:
    """The columns of the answer's rows, by their types. Values may be null, a key's never are."""
    properties = {
        "window_start": _schema("timestamp"),
        "window_end": _schema("timestamp"),
        **{name: _schema(kind) for name, kind in output.key.items()},
        **{name: _or_null(_schema(kind)) for name, kind in output.values.items()},
        "final": _schema("boolean"),
        "version": _schema("bigint"),
    }
    row = {"type": "object", "properties": properties, "required": [*properties]}
    schema = answer | {
        "title": f"RowsOf{output.job.title().replace('_', '')}",
        "properties": answer["properties"] | {"rows": {"type": "array", "items": row}},
    }
    ok = {"description": output.summary, "content": {"application/json": {"schema": schema}}}
    return operation | {"responses": operation["responses"] | {"200": ok}}


def _with_scope(security: list[dict[str, list[str]]], scope: str) -> list[dict[str, list[str]]]:
    return [{means: [*scopes, scope] for means, scopes in one.items()} for one in security]


def _schema(kind: Kind) -> dict[str, Any]:
    schema = {"type": JSON_TYPES.get(kind, "string")}
    return schema | ({"format": JSON_FORMATS[kind]} if kind in JSON_FORMATS else {})


def _or_null(schema: dict[str, Any]) -> dict[str, Any]:
    return {"anyOf": [schema, {"type": "null"}]}


def install(app: FastAPI, catalogue: Catalogue) -> None:
    documentation = Documentation(app, catalogue)

    @app.get("/openapi.json", include_in_schema=False, dependencies=[ANYBODY])
    async def openapi(_: Request) -> Response:
        return Response(await documentation.text(), media_type="application/json")

    @app.get("/docs", include_in_schema=False, dependencies=[ANYBODY])
    async def docs() -> FileResponse:
        return FileResponse(PAGE)

    app.mount("/docs/viewer", PublicFiles(directory=VIEWER))
