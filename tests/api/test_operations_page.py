"""The operations page as files: what it names is there, and fits what the API tells."""

import re

import pytest
from fastapi.testclient import TestClient
from millrace_api.app import PAGE

from millrace.config.panels import load_panels
from millrace.panels import UNITS

PAGES = {"/": "index.html", "/operations": "operations.html"}
SCRIPT = (PAGE / "operations.js").read_text()
PICTURE = (PAGE / "picture.js").read_text()
STYLE = (PAGE / "operations.css").read_text()
HTML = (PAGE / "operations.html").read_text()
NAMESPACES = {"http://www.w3.org/2000/svg"}  # a name, which nobody fetches


@pytest.mark.parametrize("path", PAGES)
def test_a_page_is_served_with_all_that_it_names(client: TestClient, path: str) -> None:
    answer = client.get(path)
    assert answer.headers["content-type"].startswith("text/html")
    named = re.findall(r'(?:href|src)="(/[^"]*)"', answer.text)
    assert len(named) > 4
    assert {name: client.get(name).status_code for name in named} == dict.fromkeys(named, 200)


@pytest.mark.parametrize("path", PAGES)
def test_each_page_leads_to_the_other_and_says_which_it_is(client: TestClient, path: str) -> None:
    text = client.get(path).text
    (here,) = re.findall(r'<a href="([^"]*)" aria-current="page">', text)
    assert here == path
    assert {*PAGES} <= {*re.findall(r'<a href="([^"]*)"', text)}


def test_nothing_comes_from_the_internet() -> None:
    for file in PAGE.iterdir():
        addresses = {*re.findall(r"https?://[\w./-]+", file.read_text())}
        assert addresses <= NAMESPACES, file.name


def test_a_script_names_only_elements_that_are_there() -> None:
    named = {*re.findall(r'\$\("([\w-]+)"\)', SCRIPT)}
    there = {*re.findall(r'\bid="([\w-]+)"', HTML)}
    assert len(named) > 8
    assert named <= there


def test_a_script_asks_only_for_what_the_api_has(client: TestClient) -> None:
    asked = {*re.findall(r'ask\([`"](/[\w/]+)', SCRIPT)}
    routes = client.get("/openapi.json").json()["paths"]
    assert len(asked) == 5
    for path in asked:
        assert any(route.startswith(path) for route in routes), path


def test_what_is_imported_is_exported() -> None:
    (imported,) = re.findall(r'import \{ (.*) \} from "\./picture\.js"', SCRIPT)
    exported = re.findall(r"export (?:const|function|class) (\w+)", PICTURE)
    assert {*imported.split(", ")} <= {*exported}


def test_every_kind_of_event_has_its_colour_light_and_dark() -> None:
    for mark in load_panels().marks:
        assert len(re.findall(rf"--{mark.kind}: #", STYLE)) == 2, mark.kind


def test_every_unit_is_said_in_its_way() -> None:
    """Numbers are all that is left."""
    said = {*re.findall(r'unit === "(\w+)"', PICTURE)}
    assert said == {*UNITS}


def test_an_empty_page_says_what_to_do(client: TestClient) -> None:
    """Whatever is wrong, there is a link to a page that is served."""
    links = {*re.findall(r'href(?:: |=)"(/runbooks/[\w-]+)"', HTML + SCRIPT)}
    assert "/runbooks/target-down" in links
    assert {client.get(link).status_code for link in links} == {200}
