"""The runbooks as pages, so that an alert's link opens where there is no Internet."""

import re
from functools import cache
from html import escape
from pathlib import Path
from typing import Annotated

from fastapi import APIRouter, FastAPI, Request
from fastapi import Path as InPath
from fastapi.responses import HTMLResponse
from markdown_it import MarkdownIt

from millrace_api.access import needs
from millrace_api.problems import NotFound

FRONT_MATTER = re.compile(r"---\n(.*?\n)---\n", re.DOTALL)
TITLE = re.compile(r"^title: (.+)$", re.MULTILINE)
HEADING = re.compile(r"\s*# (.+)\n")
PAGE = """\
<!doctype html>
<html lang="en">
<meta charset="utf-8">
<meta name="viewport" content="width=device-width, initial-scale=1">
<title>{title}</title>
<link rel="icon" href="/page/icon.svg">
<link rel="stylesheet" href="/page/page.css">
<main class="runbook">
<h1>{title}</h1>
{body}
</main>
</html>
"""

router = APIRouter(include_in_schema=False, dependencies=[needs("operations")])
# No HTML of their own: what they show is text.
markdown = MarkdownIt("commonmark", {"html": False}).enable("table")


@router.get("/runbooks/{name}")
def runbook(
    request: Request,
    name: Annotated[str, InPath(pattern=r"^[A-Za-z0-9-]+(\.md)?$", max_length=100)],
) -> HTMLResponse:
    """With or without `.md`, as the pages link to each other."""
    folder: Path = request.app.state.settings.runbooks
    path = folder / f"{name.removesuffix('.md')}.md"
    if not path.exists():
        raise NotFound(f"no runbook {name!r}; /runbooks/README lists them")
    return HTMLResponse(rendered(path))


@cache  # another version of them comes with another start of the API
def rendered(path: Path) -> str:
    return page(path.read_text())


def page(text: str) -> str:
    """A runbook as HTML; what it says of itself becomes its title, where it does."""
    about = FRONT_MATTER.match(text)
    heading = HEADING.match(text)
    found = TITLE.search(about[1]) if about else heading
    title = found[1] if found else "Runbook"
    said = about or heading
    tokens = markdown.parse(text[said.end() :] if said else text)
    for token in tokens:
        if token.type in ("fence", "table_open"):
            token.attrSet("tabindex", "0")  # what is wider than a screen is scrolled by keys, too
    body = markdown.renderer.render(tokens, markdown.options, {})
    return PAGE.format(title=escape(title), body=body)


def install(app: FastAPI) -> None:
    app.include_router(router)
