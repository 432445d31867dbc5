"""Colours of the pages, light and dark, can be told from what is behind them (WCAG 2.1, AA).

Also those of what is drawn: no tool that looks at a page in a browser judges a picture.
"""

import re

import pytest
from millrace_api.app import PAGE

PLAIN = (PAGE / "page.css").read_text()
OPERATIONS = (PAGE / "operations.css").read_text()
TEXT = ("ink", "soft", "faint", "water", "up", "degraded", "down")
DRAWN = (
    *("water", "visitors", "s2", "s3", "s4", "s5", "so"),
    *(f"c{n}" for n in range(8)),
    *("take-over", "restart", "deployment", "alert", "drill"),
)
TEXT_RATIO, DRAWN_RATIO = 4.5, 3.0


def colours(dark: bool) -> dict[str, str]:
    """By their names: what stands in dark schemes takes the place of what stands before."""
    found: dict[str, str] = {}
    for css in (PLAIN, OPERATIONS):
        light, dark_part = css.split("@media (prefers-color-scheme: dark)", 1)
        block = dark_part[: dark_part.index("\n}\n")]
        for part in (light, block) if dark else (light,):
            found |= dict(re.findall(r"--([\w-]+): (#[0-9a-f]{6})", part))
    return found


def luminance(colour: str) -> float:
    parts = [int(colour[at : at + 2], 16) / 255 for at in (1, 3, 5)]
    linear = [
        part / 12.92 if part <= 0.04045 else ((part + 0.055) / 1.055) ** 2.4 for part in parts
    ]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def contrast(one: str, other: str) -> float:
    dark, light = sorted((luminance(one), luminance(other)))
    return (light + 0.05) / (dark + 0.05)


@pytest.mark.parametrize("dark", [False, True])
def test_text_can_be_read(dark: bool) -> None:
    found = colours(dark)
    low = {
        (name, behind): round(contrast(found[name], found[behind]), 2)
        for name in TEXT
        for behind in ("card", "ground")
    }
    assert {pair: ratio for pair, ratio in low.items() if ratio < TEXT_RATIO} == {}


@pytest.mark.parametrize("dark", [False, True])
def test_what_is_drawn_can_be_seen(dark: bool) -> None:
    found = colours(dark)
    low = {name: round(contrast(found[name], found["card"]), 2) for name in DRAWN}
    assert {name: ratio for name, ratio in low.items() if ratio < DRAWN_RATIO} == {}


def test_black_on_white_is_the_most_there_is() -> None:
    assert contrast("#000000", "#ffffff") == pytest.approx(21)
    assert contrast("#8b9aa5", "#ffffff") == pytest.approx(2.89, abs=0.01)
