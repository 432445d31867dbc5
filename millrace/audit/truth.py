"""What the results have to be: windows and pages counted from the records themselves. Pure.

Others may be sending while an audit reads, and events may be too late for their window. So a truth
is a range for each figure: ``low`` counts what surely was in when the results were read, ``high``
all that may have been. With nobody else about and nothing late they are equal.
"""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millrace.audit.page_views import PageViewRule

SIZES = {"1m": 60, "1h": 3600}
PAGE_SIZE = "1h"
HOUR = SIZES[PAGE_SIZE]
DAY = 86400
STATUS_CLASSES = ("2xx", "3xx", "4xx", "5xx", "other")
COUNTS = ("requests", "page_views", "bytes", *STATUS_CLASSES)
VISITORS = "visitors"

# Figures of a window by name; windows by size and start, pages by hour and URL (s since 1970).
Figures = dict[str, int]
Window = tuple[str, int]
Page = tuple[int, str]


@dataclass(frozen=True)
class Cut:
    """Offsets by partition: records before ``before`` were in when results were first read, those
    from ``after`` on weren't when they had been read."""

    before: np.ndarray
    after: np.ndarray


@dataclass(frozen=True)
class Lateness:
    """In seconds: how late is too late, and how far ahead of the clock an event may be."""

    watermark: int
    ahead: int


@dataclass(frozen=True)
class PageList:
    """Pages of an hour as a plane has them, by URL: all, or the most viewed ones of too many.

    Attributes:
        views: too high by ``error`` at most. A page that isn't here has at most twice the error.
        other: all of the hour's page views that aren't surely (``views - error``) of a page here.
    """

    views: dict[str, int]
    error: int = 0
    other: int = 0

    @property
    def page_views(self) -> int:
        return sum(self.views.values()) - self.error * len(self.views) + self.other


@dataclass(frozen=True)
class Truth:
    low: dict[Window, Figures]
    high: dict[Window, Figures]
    low_pages: dict[Page, int]
    high_pages: dict[Page, int]


def truth_of(records: pa.Table, cut: Cut, lateness: Lateness, rule: PageViewRule) -> Truth:
    """From one row for each record: an event's fields, ``partition``, ``offset``, ``arrived``.

    ``arrived`` is in seconds since 1970.
    """
    partition, offset = records["partition"].to_numpy(), records["offset"].to_numpy()
    judged = with_judgement(records, rule)
    in_high = offset < cut.after[partition]
    in_low = offset < cut.before[partition]
    low: dict[Window, Figures] = {}
    high: dict[Window, Figures] = {}
    for size, seconds in SIZES.items():
        in_time = ~may_be_late(records, seconds, lateness)
        low |= _windows(judged.filter(pa.array(in_low & in_time)), size)
        high |= _windows(judged.filter(pa.array(in_high)), size)
    in_time = ~may_be_late(records, SIZES[PAGE_SIZE], lateness)
    return Truth(
        low,
        high,
        _pages(judged.filter(pa.array(in_low & in_time))),
        _pages(judged.filter(pa.array(in_high))),
    )


def requests_by_day(
    records: pa.Table, end: np.ndarray, archived: Mapping[int, int], hours: Collection[int]
) -> dict[Window, int]:
    """Requests by size of window and day: those before ``end``, on all days of ``hours``.

    Args:
        records: all records of ``hours``.
        archived: hours since 1970 with their number of rows, which stands for the other hours.
    """
    before_end = records["offset"].to_numpy() < end[records["partition"].to_numpy()]
    days = day_of(epoch_seconds(records["event_time"]))
    result: dict[Window, int] = {}
    for day in {day_of(hour) for hour in hours}:
        others = sum(
            rows
            for hour, rows in archived.items()
            if day_of(hour * HOUR) == day and hour * HOUR not in hours
        )
        requests = others + int((before_end & (days == day)).sum())
        result |= {(size, day): requests for size in SIZES}
    return result


def may_be_late(records: pa.Table, seconds: int, lateness: Lateness) -> np.ndarray:
    """Whose window may have been closed on arrival: no watermark is ahead of the clock by more."""
    end = (epoch_seconds(records["event_time"]) // seconds + 1) * seconds
    return end <= records["arrived"].to_numpy() + lateness.ahead - lateness.watermark


def with_judgement(records: pa.Table, rule: PageViewRule) -> pa.Table:
    """Adds ``time``, ``page``, ``page_view`` and a column for each class of status."""
    page = _replace(records["url"], "(?s)[?#].*")
    extension = pc.utf8_lower(_replace(page, r"(?s)^.*\."))
    is_view = pc.and_(
        pc.and_(
            pc.equal(records["kind"], "page_view"), pc.is_in(records["method"], _set(rule.methods))
        ),
        pc.and_(
            pc.is_in(records["status"], pa.array(rule.statuses, pa.int32())),
            pc.invert(pc.is_in(extension, _set(rule.asset_extensions))),
        ),
    )
    hundreds = records["status"].to_numpy() // 100
    classes = {f"{digit}xx": hundreds == digit for digit in range(2, 6)}
    classes["other"] = (hundreds < 2) | (hundreds > 5)
    return pa.table(
        {
            "time": epoch_seconds(records["event_time"]),
            "page": pc.utf8_slice_codeunits(page, 0, rule.page_characters),
            "visitor_id": records["visitor_id"],
            "requests": np.ones(len(records), np.int64),
            "page_views": is_view.cast(pa.int64()),
            "bytes": records["bytes"],
            **{name: classes[name].astype(np.int64) for name in STATUS_CLASSES},
        }
    )


def epoch_seconds(times: pa.ChunkedArray) -> np.ndarray:
    return times.cast(pa.timestamp("us", "UTC")).cast(pa.int64()).to_numpy() // 1_000_000


def day_of(start: Any) -> Any:
    """The start of the day, of one moment or of an array of them."""
    return start // DAY * DAY


def _windows(judged: pa.Table, size: str) -> dict[Window, Figures]:
    seconds = SIZES[size]
    starts = pa.array(judged["time"].to_numpy() // seconds * seconds)
    sums = [(name, "sum") for name in COUNTS]
    grouped = judged.append_column("start", starts).group_by("start")
    rows = grouped.aggregate([*sums, ("visitor_id", "count_distinct")]).to_pylist()
    return {
        (size, row["start"]): {name: row[f"{name}_sum"] for name in COUNTS}
        | {VISITORS: row["visitor_id_count_distinct"]}
        for row in rows
    }


def _pages(judged: pa.Table) -> dict[Page, int]:
    views = judged.filter(pc.equal(judged["page_views"], 1))
    seconds = SIZES[PAGE_SIZE]
    hours = pa.array(views["time"].to_numpy() // seconds * seconds)
    grouped = views.append_column("hour", hours).group_by(["hour", "page"])
    rows = grouped.aggregate([("page_views", "sum")]).to_pylist()
    return {(row["hour"], row["page"]): row["page_views_sum"] for row in rows}


def _replace(texts: pa.ChunkedArray, pattern: str) -> pa.ChunkedArray:
    """Without what matches. Few texts are distinct, so each is looked at once."""
    encoded = texts.combine_chunks().dictionary_encode()
    short = pc.replace_substring_regex(encoded.dictionary, pattern, "")
    return pa.chunked_array([short.take(encoded.indices)])


def _set(values: list[str]) -> pa.Array:
    return pa.array(values, pa.string())
