"""The pages in a browser: anybody can read them, and nothing of them needs an exception.

Over a store and a Prometheus in memory; `drills/operations_page.py` looks at a cluster's.
"""

import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from axe_playwright_python.sync_playwright import Axe
from millrace_api.access import COOKIE
from playwright.sync_api import Browser, Page, ViewportSize, expect, sync_playwright

from millrace_shared.generations import Layer, Overlay
from millrace_shared.keys import SCOPES
from tests.api.conftest import api_settings
from tests.api.fakes import FakeFeed, FakeStore
from tests.api.keys import ALL, create_app, following, key, secret_of
from tests.api.serving import LONG_URL, TEN, at_loopback, busy_store
from tests.api.test_operations import StandIn
from tests.api.test_operations import served as prometheus
from tests.waiting import PATIENCE_SECONDS

DESKTOP: ViewportSize = {"width": 1280, "height": 900}
PHONE: ViewportSize = {"width": 390, "height": 844}
# Page → what is there once it has shown what it was made for.
PAGES = {
    "/": ("#declared table tbody tr", "#pages li bdi", ".letter code bdi"),
    "/operations": (".panel .chart svg", '.panel rect[fill="var(--down)"]'),
    "/runbooks/README": ("table",),
    "/runbooks/readers-storm": ("pre",),
    "/docs": (".opblock",),
}
RULES = {"runOnly": ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "best-practice"]}
AXE = Axe()


@dataclass
class Look:
    """A page as it stands, and what its browser complained of."""

    page: Page
    complaints: list[str] = field(default_factory=list)


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    expect.set_options(timeout=PATIENCE_SECONDS * 1e3)  # its own 5 s are too few for busy cores
    with sync_playwright() as playwright:
        # Chromium's sandbox isn't for root, as whom containers and CI run; the page is our own.
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), chromium_sandbox=False
        )
        yield browser
        browser.close()


@pytest.fixture(scope="module")
def store() -> FakeStore:
    return busy_store()


@pytest.fixture(scope="module")
def url(panels: Path, store: FakeStore) -> Iterator[str]:
    monitor = StandIn()
    monitor.series = {
        "up{": [({"host": f"edge-{n}", "job": "insight-api"}, n / 2) for n in range(3)],
        "lag_records": [({"name": "traffic"}, 7), ({"name": "archive"}, 3)],
        "ALERTS": [({"alertname": "ZoneDown", "zone": "a"}, lambda at: at)],
    }
    monitor.alerts = [alert("ZoneDown", "critical"), alert("DeadLetters", "warning")]
    with prometheus(monitor) as endpoint:
        update = {"prometheus": [endpoint], "prometheus_timeout_seconds": PATIENCE_SECONDS}
        update |= {"client_streams": 50, "max_streams": 50}
        settings = api_settings(panels).model_copy(update=update)
        keys = {ALL: key(ALL, *SCOPES)} | {scope: key(scope, scope) for scope in SCOPES}
        with at_loopback(create_app(settings, store, FakeFeed(), following(keys))) as url:
            yield url


def alert(name: str, severity: str) -> dict[str, Any]:
    return {
        "labels": {"alertname": name, "severity": severity},
        "annotations": {"summary": f"about {name}"},
        "state": "firing",
        "activeAt": "2026-05-17T10:00:00.123456789Z",
    }


@contextmanager
def looking(
    browser: Browser, address: str, by: str | None = ALL, shows: str = "", **context: Any
) -> Iterator[Look]:
    """At a page that has shown everything, to who has logged in with a key or none. A stream never
    ends, so nobody waits for silence."""
    with browser.new_context(viewport=DESKTOP, **context) as opened:
        if by:
            here = "/".join(address.split("/")[:3])
            opened.add_cookies([{"name": COOKIE, "value": secret_of(by), "url": here}])
        look = Look(opened.new_page())
        look.page.set_default_timeout(PATIENCE_SECONDS * 1e3)
        look.page.on("pageerror", lambda error: look.complaints.append(str(error)))
        look.page.on(
            "console",
            lambda said: said.type == "error" and look.complaints.append(said.text),
        )
        look.page.goto(address, wait_until="domcontentloaded")
        path = "/" + address.split("/", 3)[3]
        shown(look.page, *((shows,) if shows else PAGES[path]))
        yield look


def shown(page: Page, *selectors: str) -> None:
    for selector in selectors:
        page.wait_for_selector(selector, state="attached")


def resize(page: Page, size: ViewportSize) -> None:
    """Waits for the page to have that width: a browser answers before it has laid it out."""
    page.set_viewport_size(size)
    page.wait_for_function("width => window.innerWidth === width", arg=size["width"])


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("path", PAGES)
def test_anybody_can_read_a_page(
    browser: Browser, url: str, path: str, scheme: str, tmp_path: Path
) -> None:
    with looking(browser, url + path, color_scheme=scheme, reduced_motion="reduce") as look:
        # The documentation's viewer, its colours and markup, is somebody else's.
        context = {"exclude": [[".swagger-ui"]]} if path == "/docs" else None
        found = AXE.run(look.page, context=context, options=RULES)
        assert found.violations_count == 0, found.generate_report()
        resize(look.page, PHONE)
        is_wider = "document.documentElement.scrollWidth > window.innerWidth"
        assert not look.page.evaluate(is_wider)
        assert look.complaints == []


@pytest.mark.parametrize("scheme", ["light", "dark"])
@pytest.mark.parametrize("path", ["/", "/operations", "/runbooks/README"])
def test_anybody_can_type_a_key_in(browser: Browser, url: str, path: str, scheme: str) -> None:
    with looking(browser, url + path, by=None, shows="form", color_scheme=scheme) as look:
        page = look.page
        field = page.get_by_label("Key")
        expect(field).to_be_focused()
        expect(field).to_have_attribute("autocomplete", "off")
        field.fill(secret_of("unknown"))
        field.press("Enter")
        alert = page.locator("#key-said")
        expect(alert).to_have_text("This key isn't known, or it has ended.")
        found = AXE.run(page, options=RULES)
        assert found.violations_count == 0, found.generate_report()
        resize(page, PHONE)
        assert not page.evaluate("document.documentElement.scrollWidth > window.innerWidth")
        field.fill("\u2713 what no header takes")
        field.press("Enter")
        expect(alert).to_contain_text("can't be sent")
        field.fill(f" {secret_of(ALL)} ")  # as it is pasted
        page.get_by_role("button", name="Log in").click()
        shown(page, *PAGES[path])
        assert page.locator("form.key").count() == 0


def test_who_logs_out_is_asked_for_a_key_again(browser: Browser, url: str) -> None:
    with looking(browser, url + "/") as look:
        look.page.get_by_role("button", name=f"Log out {ALL}").click()
        expect(look.page.get_by_label("Key")).to_be_visible()
        assert look.page.context.cookies() == []


def test_who_reads_by_another_header_has_nothing_to_log_out_of(browser: Browser, url: str) -> None:
    headers = {"Authorization": f"Bearer {secret_of(ALL)}"}
    with looking(browser, url + "/", by=None, extra_http_headers=headers) as look:
        assert look.page.locator(".leave").count() == 0
        assert look.complaints == []


def test_a_page_shows_what_its_key_may_read_and_names_what_the_rest_needs(
    browser: Browser, url: str
) -> None:
    with looking(browser, url + "/", by="insights", shows="#chart svg") as look:
        page = look.page
        expect(page.locator("#planes")).to_have_text("Needs a key with the scope operations.")
        expect(page.locator("#letter-list")).to_have_text("Needs a key with the scope letters.")
        expect(page.locator("#declared")).to_contain_text(
            "This needs a key with the scope 'sessions'"
        )
        page.wait_for_selector("#declared table tbody tr", state="attached")
        expect(page.locator("#pages li").first).to_be_visible()
        expect(page.get_by_role("status")).to_have_text("live")
        expect(page.locator("#notice")).to_be_hidden()
        found = AXE.run(page, options=RULES)
        assert found.violations_count == 0, found.generate_report()
    with looking(browser, url + "/", by="operations", shows=".plane") as look:
        page = look.page
        expect(page.locator("#chart")).to_have_text("Needs a key with the scope insights.")
        expect(page.get_by_role("status")).to_have_text("needs a key with the scope insights")
    with looking(browser, url + "/operations", by="insights", shows=".plane, #notice") as look:
        expect(look.page.locator("#notice")).to_contain_text("scope 'operations'")
    with looking(browser, url + "/runbooks/README", by="insights", shows="#why") as look:
        expect(look.page.locator("#why")).to_contain_text("scope 'operations'")
        expect(look.page.get_by_role("button", name="Log out insights")).to_be_visible()


def test_a_long_address_is_read_whole_without_a_pointer(browser: Browser, url: str) -> None:
    with looking(browser, url + "/") as look:
        for size in (DESKTOP, PHONE):
            resize(look.page, size)
            shown = look.page.get_by_text(LONG_URL).all()
            assert len(shown) == 4  # a page, and what is told of three dead letters
            for one in shown:
                expect(one).to_be_visible()
                cut = "one => one.parentElement.scrollWidth > one.parentElement.clientWidth + 1"
                assert not one.evaluate(cut)


def test_what_came_from_outside_stands_apart(browser: Browser, url: str) -> None:
    with looking(browser, url + "/") as look:
        addresses = look.page.locator("#pages li")
        assert addresses.count() == look.page.locator("#pages li bdi").count() > 5
        assert look.page.locator(".letter code bdi").count() == 3


def test_times_are_the_reader_s_as_well(browser: Browser, url: str) -> None:
    with looking(browser, url + "/", timezone_id="Asia/Kolkata") as look:
        expect(look.page.locator("#range")).to_contain_text("17 May 2015, 12:00 17:30 here")
    with looking(browser, url + "/", timezone_id="UTC") as look:
        expect(look.page.locator("#range")).to_contain_text("17 May 2015, 12:00")
        expect(look.page.locator("#range")).not_to_contain_text("here")


def test_a_state_has_a_word_and_a_sign(browser: Browser, url: str) -> None:
    with looking(browser, url + "/operations") as look:
        signs = "one => getComputedStyle(one, '::before').content"
        for plane in look.page.locator(".plane").all():
            state = plane.locator("small").inner_text().split(":")[0]
            sign = {"up": "✓", "degraded": "!", "down": "✕"}[state]
            assert plane.locator(".dot").evaluate(signs) == f'"{sign}"'
        heights = {
            bar.get_attribute("fill"): float(bar.get_attribute("height") or 0)
            for bar in look.page.locator('.panel rect[fill^="var"]').all()
        }
        assert heights["var(--down)"] < heights["var(--degraded)"] < heights["var(--up)"]


def test_the_state_is_told_aloud_when_it_changes_and_not_each_second(
    browser: Browser, url: str
) -> None:
    with looking(browser, url + "/") as look:
        state = look.page.get_by_role("status")
        expect(state).to_have_text("live")
        expect(look.page.locator("#live-clock")).not_to_have_attribute("aria-live", "polite")


def test_arrow_keys_tell_a_moment_in_words(browser: Browser, url: str) -> None:
    with looking(browser, url + "/operations") as look:
        chart = look.page.locator(".panel .chart:has(svg)").first
        chart.focus()
        chart.press("ArrowLeft")
        words = chart.locator("xpath=following-sibling::p[@aria-live]")
        expect(words).not_to_be_empty()


def test_a_shell_block_scrolls_inside_itself_on_a_phone(browser: Browser, url: str) -> None:
    with looking(browser, url + "/runbooks/readers-storm") as look:
        resize(look.page, PHONE)
        block = look.page.locator("pre code").first
        assert block.evaluate("one => one.scrollWidth > one.clientWidth")
        assert block.get_attribute("tabindex") == "0"
        assert not look.page.evaluate("document.documentElement.scrollWidth > window.innerWidth")


def test_a_call_is_tried_in_the_documentation(browser: Browser, url: str) -> None:
    with looking(browser, url + "/docs") as look:
        block = look.page.locator("#operations-state-extent")
        block.locator("button.opblock-summary-control").click()
        block.get_by_role("button", name="Try it out").click()
        block.get_by_role("button", name="Execute").click()
        answer = block.locator(".live-responses-table .response-col_status").last
        expect(answer).to_contain_text("200")
        assert look.complaints == []


def test_a_page_that_is_open_shows_another_count_all_at_once(
    browser: Browser, url: str, store: FakeStore
) -> None:
    """Pages are asked for more seldom than figures, but for such a moment."""
    store.rows_again = {1: [replace(row, requests=10 * row.requests) for row in store.rows]}
    store.pages_again = {1: {TEN: Counter({"/counted/again": 7})}}
    day = timedelta(days=1)
    with looking(browser, f"{url}/") as look:
        before = look.page.text_content("#requests")
        store.overlays = {"traffic": Overlay().switched(Layer(TEN - day, TEN + day, 1, 1))}
        try:
            is_other = "was => document.getElementById('requests').textContent !== was"
            look.page.wait_for_function(is_other, arg=before)
            first = "document.querySelector('#pages li bdi').textContent"
            assert look.page.evaluate(first) == "/counted/again"
        finally:
            store.overlays = {}
        assert look.complaints == []
