"""The operations page as an operator sees it: in a browser, with the pointer on a picture."""

import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from playwright.sync_api import Page, expect, sync_playwright

from millrace.plan import Plan

DESKTOP = {"width": 1280, "height": 900}
PHONE = {"width": 390, "height": 844}
TOLD_MS = 120e3  # a scrape, a rule's turn, and the page's own refresh; each up to 15 s

# Of 15 s: the gateway has looked, Prometheus has asked it, and no other driver stands by yet.
AFTER_STEPS = 3


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
    api = plan.services["insight_api"]
    with sync_playwright() as playwright:
        # Chromium's sandbox isn't for root, as whom containers and CI run; the page is our own.
        browser = playwright.chromium.launch(
            executable_path=shutil.which("chromium"), chromium_sandbox=False
        )
        page = browser.new_page(viewport=DESKTOP)
        page.goto(f"http://{plan.host(api.hosts[0]).address}:{api.ports['http']}/operations#15m")
        yield page
        browser.close()


def explained(plan: Plan, application: str, picture: Path) -> Explained:
    """Waits until the page tells of the last take-over, and leaves a picture of all of it."""
    with operations_page(plan) as page:
        alerts = page.locator("#alerts")
        expect(alerts).to_contain_text("DriverTakenOver", timeout=TOLD_MS)
        take_over = page.locator("#happened tr", has_text=f"another driver leads {application}")
        expect(take_over.first).to_be_visible(timeout=TOLD_MS)
        happened = page.locator("#happened").inner_text()
        card = page.locator(".panel", has=page.get_by_role("heading", name="Drivers"))
        chart = card.locator(".chart")
        mark = chart.locator('circle[fill="var(--take-over)"]').first  # the newest
        expect(mark).to_be_visible(timeout=TOLD_MS)
        fresh = page.locator("#fresh-text")
        expect(fresh).to_contain_text("figures until", timeout=TOLD_MS)
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
