"""The operations page as an operator sees it: in a browser, with the pointer on a picture."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from playwright.sync_api import Page, expect, sync_playwright

from millrace.cluster import doors
from millrace.common.waiting import wait_until
from millrace.plan import Plan

DESKTOP = {"width": 1280, "height": 900}
PHONE = {"width": 390, "height": 844}
TOLD_MS = 120e3  # a scrape, a rule's turn, and the page's own refresh; each up to 15 s

# Of 15 s: the gateway has looked, Prometheus has asked it, and no other driver stands by yet.
AFTER_STEPS = 3
AFTER_MS = 75e3  # by then the picture has that moment
TAKEN_OVER_SECONDS = 300  # a drill begins with a look at all hosts, and finds the driver


@dataclass(frozen=True)
class Explained:
    """What the page shows of a take-over."""

    alerts: str
    happened: str
    at_mark: str  # of the picture of drivers: what it tells at the take-over's mark,
    after_mark: str  # and of the moment after it
    with_marks: bytes  # that picture, and the same without the marks of take-overs
    without_marks: bytes
    phone_scrolls_sideways: bool


@contextmanager
def operations_page(plan: Plan) -> Iterator[Page]:
    access = doors.credentials(plan)
    [page_url, *_] = doors.urls(plan, doors.INSIGHTS)
    with sync_playwright() as playwright:
        # Chromium's sandbox isn't for root, as whom containers and CI run; the page is our own.
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), chromium_sandbox=False
        )
        # The browser knows no authority but the public ones; the toolkit's clients verify.
        page = browser.new_page(
            viewport=DESKTOP, ignore_https_errors=True, extra_http_headers=access.headers
        )
        page.goto(f"{page_url}/operations#15m")
        yield page
        browser.close()


def newest_take_over(page: Page, application: str) -> str:
    """Its line in the list, which begins with its time; empty if there is none."""
    lines = page.locator("#happened tr", has_text=f"another driver leads {application}")
    return next(iter(lines.all_inner_texts()), "")


def explained(plan: Plan, application: str, picture: Path) -> Explained:
    """Waits until the page tells of the next take-over, and leaves a picture of all of it.

    To be asked before the fault: the alert is over before a slow machine has another standby.
    """
    with operations_page(plan) as page:
        expect(page.locator("#happened .waits")).to_have_count(0, timeout=TOLD_MS)
        before = newest_take_over(page, application)
        taken_over = wait_until(
            lambda: newest_take_over(page, application) not in ("", before), TAKEN_OVER_SECONDS
        )
        assert taken_over, f"the newest take-over is still that of {before or 'never'}"
        alerts = page.locator("#alerts")
        expect(alerts).to_contain_text("DriverTakenOver", timeout=TOLD_MS)
        page.wait_for_timeout(AFTER_MS)
        happened = page.locator("#happened").inner_text()
        card = page.locator(".panel", has=page.get_by_role("heading", name="Drivers"))
        chart = card.locator(".chart")
        mark = chart.locator('circle[fill="var(--take-over)"]').first  # the newest
        expect(mark).to_be_visible(timeout=TOLD_MS)
        expect(page.locator("#fresh-text")).to_have_text("figures", timeout=TOLD_MS)
        page.context.set_offline(True)  # what is looked at stays as it is
        tip = chart.locator(".tip")
        mark.hover(force=True)  # another event's mark may lie on it
        at_mark = tip.inner_text()
        for _ in range(AFTER_STEPS):
            chart.press("ArrowRight")
        after_mark = tip.inner_text()
        page.mouse.move(0, 0)
        page.evaluate("scrollTo(0, 0)")
        page.screenshot(path=picture, full_page=True)
        with_marks = chart.screenshot()
        page.get_by_role("button", name="take-over").click()
        without_marks = chart.screenshot()
        page.set_viewport_size(PHONE)
        sideways = page.evaluate("document.documentElement.scrollWidth > window.innerWidth")
        return Explained(
            alerts.inner_text(),
            happened,
            at_mark,
            " ".join(after_mark.split()),
            with_marks,
            without_marks,
            bool(sideways),
        )
