"""What Nexmark's queries must give, counted from the generator, without any engine. Pure.

A row is of whole numbers: euros are thousandths, times and windows' starts are ms, texts are their
CRC-32. The queries are those of github.com/nexmark/nexmark; but q12's windows are of event time,
since what falls into a window of processing time differs from run to run and can't be checked.
"""

from collections.abc import Callable, Mapping
from functools import lru_cache
from typing import Any

import numpy as np

from bench.engines import nexmark
from bench.engines.nexmark import AUCTION, BID, PERSON, Events
from bench.engines.stream import PARTITIONS, WINDOW_MS
from bench.engines.workload import Workload, text_number

EURO_THOUSANDTHS = 908  # of a dollar
SELECTED = 123  # one in so many auctions
HOP_MS = 2000
HOPS = WINDOW_MS // HOP_MS


def q1(found: Events) -> np.ndarray:
    """Bids in euros: auction, bidder, time, extra, price."""
    bids = of_kind(found, BID)
    extra = np.array([text_number(text) for text in nexmark.extras()])[bids.member]
    euros = EURO_THOUSANDTHS * nexmark.drawn().price[bids.member]
    return np.stack([bids.one, bids.other, bids.time_ms, extra, euros], axis=1)


def q2(found: Events) -> np.ndarray:
    """Bids of some auctions: auction, price."""
    bids = of_kind(found, BID)
    rows = np.stack([bids.one, nexmark.drawn().price[bids.member]], axis=1)
    return rows[bids.one % SELECTED == 0]


def q5(found: Events) -> np.ndarray:
    """Auctions with the most bids of each window of 10 s, every 2 s: auction, start, bids."""
    bids = of_kind(found, BID)
    panes, counts = np.unique(
        np.stack([bids.time_ms // HOP_MS, bids.one]), axis=1, return_counts=True
    )
    # A pane of two seconds is part of the window that begins with it and of those before.
    windows = np.concatenate([panes - [[back], [0]] for back in range(HOPS)], axis=1)
    (hop, auction), which = np.unique(windows, axis=1, return_inverse=True)
    bids_of = np.bincount(which.ravel(), np.tile(counts, HOPS)).astype(np.int64)
    first = np.flatnonzero(np.diff(hop, prepend=-1))  # of each window
    most = np.maximum.reduceat(bids_of, first) if len(first) else bids_of
    hottest = bids_of == np.repeat(most, np.diff(first, append=len(hop)))
    return np.stack([auction, hop * HOP_MS, bids_of], axis=1)[hottest]


def q8(found: Events) -> np.ndarray:
    """People who sell in the window of 10 s in which they are new: id, start, name."""
    people, auctions = of_kind(found, PERSON), of_kind(found, AUCTION)
    new, sale = (
        np.stack([ids, _window(own)], axis=1)
        for ids, own in ((people.one, people), (auctions.other, auctions))
    )
    sold = set(map(tuple, sale.tolist()))
    selling = np.array([key in sold for key in map(tuple, new.tolist())], bool)
    name = np.array([text_number(one["name"]) for one in nexmark.people()])
    names = name[people.member // nexmark.EPOCH]
    return np.concatenate([new, names[:, None]], axis=1)[selling]


def q12(found: Events) -> np.ndarray:
    """Bids of each bidder and window of 10 s: bidder, start, bids."""
    bids = of_kind(found, BID)
    keys, counts = np.unique(np.stack([bids.other, _window(bids)]), axis=1, return_counts=True)
    return np.concatenate([keys, counts[None]]).T


def of_kind(found: Events, kind: int) -> Events:
    those = found.kind == kind
    return Events(*(column[those] for column in vars(found).values()))


def _window(found: Events) -> np.ndarray:
    return found.time_ms // WINDOW_MS * WINDOW_MS


@lru_cache(1)
def all_events(total: int) -> Events:
    return nexmark.events(np.arange(total), total)


def with_last(count: Callable[[Events], np.ndarray]) -> Callable[[Events], np.ndarray]:
    """A query without windows gives what it makes of each partition's last bid, too."""

    def counted(found: Events) -> np.ndarray:
        last = np.array([nexmark.LATER])
        ids = np.array([nexmark.LAST_ID])
        bid = Events(np.array([BID]), ids, ids, last, np.array([nexmark.BID_OF_LAST]))
        return np.concatenate([count(found), *[count(bid)] * PARTITIONS])

    return counted


def milli(number: float) -> int:
    """Of a decimal with three digits after its point; -1 for one with more."""
    whole = round(1000 * number)
    return whole if whole / 1000 == number else -1


def _q1_row(row: Mapping[str, Any]) -> tuple[int, ...]:
    text = text_number(row["extra"])
    return row["auction"], row["bidder"], row["dateTime"], text, milli(row["price"])


def _row_of(*columns: str) -> Callable[[Mapping[str, Any]], tuple[int, ...]]:
    return lambda row: tuple(row[column] for column in columns)


def _workload(
    name: str,
    count: Callable[[Events], np.ndarray],
    columns: tuple[str, ...],
    row: Callable[[Mapping[str, Any]], tuple[int, ...]] | None = None,
) -> Workload:
    return Workload(
        f"nexmark-{name}",
        nexmark.STREAM,
        columns,
        lambda events: count(all_events(events)),
        row or _row_of(*columns),
    )


NEXMARK = [
    _workload("q1", with_last(q1), ("auction", "bidder", "dateTime", "extra", "price"), _q1_row),
    _workload("q2", with_last(q2), ("auction", "price")),
    _workload("q5", q5, ("auction", "start", "num")),
    _workload(
        "q8",
        q8,
        ("id", "start", "name"),
        lambda row: (row["id"], row["start"], text_number(row["name"])),
    ),
    _workload("q12", q12, ("bidder", "start", "num")),
]
