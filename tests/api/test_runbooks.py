"""The pages that alerts open."""

from pathlib import Path

import pytest
from fastapi.testclient import TestClient
from millrace_api.runbooks import page

RUNBOOKS = Path(__file__).parents[2] / "runbooks"


@pytest.mark.parametrize("name", [path.stem for path in RUNBOOKS.glob("*.md")])
def test_every_runbook_is_a_page(client: TestClient, name: str) -> None:
    answer = client.get(f"/runbooks/{name}")
    assert answer.status_code == 200
    assert answer.headers["content-type"].startswith("text/html")
    assert "<h2>" in answer.text or "<table" in answer.text
    assert "blast_radius" not in answer.text


def test_a_page_links_to_another_by_its_file(client: TestClient) -> None:
    assert (
        client.get("/runbooks/driver-killed.md").text == client.get("/runbooks/driver-killed").text
    )


@pytest.mark.parametrize("name", ["nothing-here", "..%2Fpyproject", "README.md.md"])
def test_what_is_no_runbook_is_not_found(client: TestClient, name: str) -> None:
    assert client.get(f"/runbooks/{name}").status_code in (404, 422)


def test_text_stays_text() -> None:
    shown = page("---\ntitle: a < b\n---\n<script>alert(1)</script>\n")
    assert "<title>a &lt; b</title>" in shown
    assert "<script>" not in shown
