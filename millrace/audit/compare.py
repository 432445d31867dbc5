"""Comparisons of what a plane has with the truth. Pure."""

from collections import Counter
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millrace.audit.report import Plane
from millrace.audit.skipped import excuse
from millrace.audit.truth import (
    COUNTS,
    SIZES,
    VISITORS,
    Figures,
    Page,
    PageList,
    Truth,
    Window,
)
from millrace.cluster.skips import Skipped
from millrace.ledger.events import numbers_of
from millrace.ledger.store import Ledger

SIGMAS = 5  # beyond which an estimate is no longer bad luck


@dataclass(frozen=True)
class Visitors:
    """An estimate and its standard deviation."""

    estimate: int
    sigma: float


def compare_records(
    plane: Plane, ledger: Ledger, rows: pa.Table, skipped: Collection[Skipped] = ()
) -> None:
    """A run's acknowledged events with ``rows``: copies of its records, wherever they were read.

    ``rows`` has the columns ``event_id``, ``partition``, ``offset`` and any others of an event.
    ``skipped`` is what whoever copied them has left out for good.
    """
    numbers = numbers_of(ledger.spec, rows["event_id"])
    count = max(len(ledger.acked), int(numbers.max(initial=-1)) + 1)
    acked = np.zeros(count, bool)
    acked[: len(ledger.acked)] = ledger.acked
    copies = np.bincount(numbers, minlength=count)
    plane.checked += int(acked.sum())
    lost = excuse(plane, ledger, np.flatnonzero(acked & (copies == 0)), skipped)
    plane.find("lost", _describe(ledger, lost), len(lost))
    repeated = np.flatnonzero(copies > 1)
    plane.find("duplicated", _describe(ledger, repeated), int((copies[repeated] - 1).sum()))
    altered = _altered(ledger, numbers, rows)
    plane.find("wrong", _describe(ledger, altered), len(altered))


def _altered(ledger: Ledger, numbers: np.ndarray, rows: pa.Table) -> np.ndarray:
    """Numbers of events of which a copy differs from what was sent, or is elsewhere."""
    differs, begin = np.zeros(len(numbers), bool), 0
    for sent in ledger.portions(numbers):
        end = begin + len(sent)
        found = rows.slice(begin, len(sent))
        for name in set(sent.column_names) & set(rows.column_names):
            differs[begin:end] |= _differs(sent[name], found[name])
        begin = end
    known = numbers < len(ledger.acked)
    known[known] = ledger.acked[numbers[known]]
    of = numbers[known]
    at = rows["partition"].to_numpy()[known], rows["offset"].to_numpy()[known]
    differs[known] |= (at[0] != ledger.partition[of]) | (at[1] != ledger.offset[of])
    return np.unique(numbers[differs])


def _differs(ours: pa.ChunkedArray, theirs: pa.ChunkedArray) -> np.ndarray:
    one_is_null = pc.xor(pc.is_null(ours), pc.is_null(theirs))
    differs = pc.fill_null(pc.not_equal(ours, theirs.cast(ours.type)), False)
    return pc.or_(differs, one_is_null).to_numpy()


def _describe(ledger: Ledger, numbers: np.ndarray) -> list[str]:
    first = numbers[:5]
    rows = ledger.events(first).select(["event_id", "event_time"]).to_pylist()
    return [
        f"{row['event_id']} of {row['event_time']:%Y-%m-%dT%H:%M:%S.%f}Z, {_fate(ledger, number)}"
        for number, row in zip(first.tolist(), rows, strict=True)
    ]


def _fate(ledger: Ledger, number: int) -> str:
    if number >= len(ledger.acked) or not ledger.acked[number]:
        return "never acknowledged"
    moment = datetime.fromtimestamp(ledger.started + ledger.acked_ms[number] / 1000, UTC)
    where = f"partition {ledger.partition[number]}, offset {ledger.offset[number]}"
    return f"{where}, acknowledged {moment:%H:%M:%S.%f}Z"


def compare_windows(
    plane: Plane, truth: Truth, wanted: Iterable[Window], seen: Mapping[Window, Figures]
) -> None:
    """Compares each window that is wanted: it may be absent, or have a figure outside of the
    truth."""
    for window in sorted(wanted):
        low, high = truth.low.get(window), truth.high[window]
        found = seen.get(window)
        plane.checked += 1
        if found is None:
            if low:
                plane.find("unseen", [f"{window_name(window)} of {low['requests']} requests"])
            continue
        low = low or dict.fromkeys(high, 0)
        wrong = [
            f"{name} {found[name]} instead of {_range(low[name], high[name])}"
            for name in COUNTS
            if not low[name] <= found[name] <= high[name]
        ]
        if wrong:
            plane.find("wrong", [f"{window_name(window)}: {', '.join(wrong)}"])


def compare_visitors(
    plane: Plane, truth: Truth, wanted: Iterable[Window], seen: Mapping[Window, Visitors]
) -> float:
    """The largest error seen, in standard deviations. An estimate is wrong only far out."""
    worst = 0.0
    for window in sorted(set(wanted) & seen.keys()):
        low = truth.low.get(window, {}).get(VISITORS, 0)
        high = truth.high[window][VISITORS]
        found = seen[window]
        error = max(low - found.estimate, found.estimate - high, 0)
        # A sketch of a few is exact, and its estimate is rounded.
        sigmas = max(0.0, error - 1) / max(found.sigma, 1e-9) if error > 1 else 0.0
        worst = max(worst, sigmas)
        if sigmas > SIGMAS:
            text = f"{found.estimate} visitors instead of {_range(low, high)}, {sigmas:.1f} σ off"
            plane.find("wrong", [f"{window_name(window)}: {text}"])
    return worst


def compare_pages(
    plane: Plane, truth: Truth, wanted: Iterable[Page], seen: Mapping[int, PageList]
) -> None:
    """Compares each page that is wanted, within the error of its list."""
    for page in sorted(wanted):
        hour, url = page
        low, high = truth.low_pages.get(page, 0), truth.high_pages[page]
        listed = seen.get(hour, PageList({}))
        plane.checked += 1
        if url not in listed.views:
            if low > 2 * listed.error:
                plane.find("unseen", [f"{page_name(page)} with {low} views"])
        elif not (low <= listed.views[url] and listed.views[url] - listed.error <= high):
            error = f" (at most {listed.error} too high)" if listed.error else ""
            text = f"{listed.views[url]} views{error} instead of {_range(low, high)}"
            plane.find("wrong", [f"{page_name(page)}: {text}"])


def compare_page_sums(
    plane: Plane, truth: Truth, wanted: Iterable[Page], seen: Mapping[int, PageList]
) -> None:
    """Whatever the error of its pages, an hour's views add up exactly."""
    lows, highs = _by_hour(truth.low_pages), _by_hour(truth.high_pages)
    for hour in sorted({hour for hour, _ in wanted} & seen.keys()):
        plane.checked += 1
        if not lows[hour] <= seen[hour].page_views <= highs[hour]:
            expected = _range(lows[hour], highs[hour])
            text = f"{seen[hour].page_views} page views in all instead of {expected}"
            plane.find("wrong", [f"{window_name(('1h', hour))}: {text}"])


def _by_hour(pages: Mapping[Page, int]) -> Counter[int]:
    views: Counter[int] = Counter()
    for (hour, _), count in pages.items():
        views[hour] += count
    return views


def compare_top(
    plane: Plane,
    truth: Truth,
    hour: int,
    top: Mapping[str, int],
    distinct: int,
    most: int,
    error: int = 0,
) -> None:
    """The ``most`` most viewed pages of an hour, and how many pages there are.

    Args:
        error: by which their views may be off. Then not all pages are known.
    """
    low = {url: views for (start, url), views in truth.low_pages.items() if start == hour}
    high = {url: views for (start, url), views in truth.high_pages.items() if start == hour}
    name = window_name(("1h", hour))
    if not (error or len(low) <= distinct) or distinct > len(high):
        text = f"{name}: {distinct} pages instead of {_range(len(low), len(high))}"
        plane.find("wrong", [text])
    for url, views in top.items():
        plane.checked += 1
        if not low.get(url, 0) - error <= views <= high.get(url, 0) + error:
            expected = _range(low.get(url, 0), high.get(url, 0))
            plane.find("wrong", [f"{name} {url}: {views} views instead of {expected}"])
    least = min(top.values()) if len(top) == most else 0
    missing = sorted(url for url, views in low.items() if url not in top and views > least + error)
    plane.find("unseen", [f"{name} {url} with {low[url]} views" for url in missing])


def compare_days(
    plane: Plane,
    truth: Mapping[Window, tuple[int, int]],
    seen: Mapping[Window, int],
    late: Mapping[Window, int],
) -> None:
    """Compares each day's requests: they are in its windows of one size, or counted as late.

    Keys are a size of window and the day's start; the truth is what was at least and at most sent.
    """
    for day, (low, high) in sorted(truth.items()):
        plane.checked += 1
        found = seen.get(day, 0) + late.get(day, 0)
        name = f"{day[0]} windows of {_moment(day[1]):%Y-%m-%d}"
        text = f"{name}: {seen.get(day, 0)} requests + {late.get(day, 0)} late instead of "
        if found < low:
            plane.find("lost", [text + _range(low, high)], low - found)
        elif found > high:
            plane.find("duplicated", [text + _range(low, high)], found - high)


def follow(plane: Plane, records: Iterable[tuple[str, int]]) -> None:
    """The results topic in order: a key's versions only grow.

    Args:
        records: key and version of each.
    """
    newest: dict[str, int] = {}
    for key, version in records:
        plane.checked += 1
        before = newest.get(key, -1)
        if version == before:
            plane.find("duplicated", [f"{key} version {version} twice"])
        elif version < before:
            plane.find("wrong", [f"{key} version {version} after {before}"])
        newest[key] = max(before, version)


def window_name(window: Window) -> str:
    return f"{window[0]} window {_moment(window[1]):%Y-%m-%dT%H:%MZ}"


def page_name(page: Page) -> str:
    return f"{window_name(('1h', page[0]))} {page[1]}"


def late_requests(truth: Truth, wanted: Iterable[Window], seen: Mapping[Window, Figures]) -> int:
    """Requests that are missing from hours, though they happened."""
    hours = (window for window in wanted if SIZES[window[0]] == SIZES["1h"])
    return sum(
        truth.high[hour]["requests"] - seen[hour]["requests"]
        if hour in seen
        else truth.high[hour]["requests"]
        for hour in hours
    )


def _range(low: int, high: int) -> str:
    return f"{low}" if low == high else f"{low} to {high}"


def _moment(seconds: int) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)
