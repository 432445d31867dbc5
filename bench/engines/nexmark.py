"""Nexmark's events: people who sell, auctions and bids, 1 : 3 : 46. Pure.

An auction site, from Tucker et al., "NEXMark – A Benchmark for Queries over Data Streams" (2002),
in the form of github.com/nexmark/nexmark, whose ratios, hot sellers, items and bidders, mean sizes
(200, 500 and 100 B, a number counted as 8 B) and text these are. Two things differ. Ids begin at a
million, so that all have as many digits and can be overwritten in records that are encoded already.
And what is drawn comes again with each pool, relative to the newest ids: what is drawn of a person
is a distance from the newest one.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from bench.engines.stream import (
    LATER_MS,
    PARTITIONS,
    POOL,
    START_MS,
    TIME_DIGITS,
    WINDOW_MS,
    WINDOWS,
    Field,
    Stream,
    times_ms,
)

PERSONS, AUCTIONS, BIDS = 1, 3, 46
EPOCH = PERSONS + AUCTIONS + BIDS
PERSON, AUCTION, BID = range(3)
SEED = 11
FIRST_ID, ID_DIGITS = 1_000_000, 7
FIRST_CATEGORY, CATEGORIES = 10, 5
ACTIVE_PERSONS, AUCTIONS_IN_FLIGHT = 1000, 100
LEAD = 10  # ids that are yet to come: a bid may be there before its auction
HOT_GROUP = 100  # ids of which one is hot
HOT_AUCTION, HOT_SELLER, HOT_BIDDER = 1 / 2, 3 / 4, 3 / 4  # how often it is that one
MEAN_BYTES = (200, 500, 100)  # of a person, an auction, a bid
NUMBER_BYTES = 8
LENGTH_MS = 20_000  # of an auction, at most
FIRST_NAMES = (
    "Ada",
    "Blaise",
    "Carl",
    "Edsger",
    "Grace",
    "Hedy",
    "Ida",
    "Kurt",
    "Leonhard",
    "Mary",
)
LAST_NAMES = ("Bernoulli", "Euler", "Gauss", "Hopper", "Lamarr", "Noether", "Pascal", "Rhodes")
CITIES = ("Boise", "Cheyenne", "Olympia", "Phoenix", "Portland", "Sacramento", "Seattle", "Spokane")
STATES = ("AZ", "CA", "ID", "OR", "WA", "WY")
# Of each partition's last events, which close windows.
LAST_ID, BID_OF_LAST = 10**ID_DIGITS - 1, EPOCH - 1
LATER = START_MS + WINDOWS * WINDOW_MS + LATER_MS


@dataclass(frozen=True)
class Events:
    """Columns of some events. ``one`` is the id of a person or auction, or the auction of a bid;
    ``other`` is a seller or bidder; ``member`` is the event's place in the pool."""

    kind: np.ndarray
    one: np.ndarray
    other: np.ndarray
    time_ms: np.ndarray
    member: np.ndarray


@dataclass(frozen=True)
class Drawn:
    """Of each event of the pool: four numbers from 0 to 1, and values that don't change."""

    hot: np.ndarray
    place: np.ndarray
    other_hot: np.ndarray
    other_place: np.ndarray
    price: np.ndarray
    length_ms: np.ndarray


@lru_cache
def drawn() -> Drawn:
    draw = np.random.default_rng(SEED)
    hot, place, other_hot, other_place, price = draw.random((5, POOL))
    prices = np.round(10 ** (6 * price) * 100).astype(np.int64)
    return Drawn(hot, place, other_hot, other_place, prices, draw.integers(1, LENGTH_MS, POOL))


def events(numbers: np.ndarray, total: int) -> Events:
    """Of a stream of ``total``, those with these numbers."""
    pool, member = drawn(), numbers % POOL
    epoch, offset = np.divmod(numbers, EPOCH)
    kind = np.searchsorted([PERSONS, PERSONS + AUCTIONS], offset, side="right")
    person = epoch  # the newest of each
    auction = epoch * AUCTIONS + np.clip(offset - PERSONS, -1, AUCTIONS - 1)
    least = np.maximum(auction - AUCTIONS_IN_FLIGHT, 0)
    item = _one_of(pool.place[member], least, auction + LEAD)
    item = np.where(pool.hot[member] < HOT_AUCTION, _group(auction), item)
    least = np.maximum(person + 1 - ACTIVE_PERSONS, 0)
    other = _one_of(pool.other_place[member], least, person + LEAD)
    # The first of a group sells most and the second bids most, so that they are never one.
    seller = np.where(pool.other_hot[member] < HOT_SELLER, _group(person), other)
    bidder = np.where(pool.other_hot[member] < HOT_BIDDER, _group(person) + 1, other)
    return Events(
        kind,
        FIRST_ID + np.choose(kind, [person, auction, item]),
        FIRST_ID + np.choose(kind, [person, seller, bidder]),
        times_ms(numbers, total),
        member,
    )


def _one_of(share: np.ndarray, least: np.ndarray, most: np.ndarray) -> np.ndarray:
    return least + (share * (most - least + 1)).astype(np.int64)


def _group(ids: np.ndarray) -> np.ndarray:
    return ids // HOT_GROUP * HOT_GROUP


@lru_cache
def people() -> list[dict[str, str]]:
    """What doesn't change of a person, for each event of the pool."""
    draw = np.random.default_rng(SEED + 1)
    made = []
    for _ in range(POOL // EPOCH):
        first, last, city, state = (
            values[int(draw.integers(len(values)))]
            for values in (FIRST_NAMES, LAST_NAMES, CITIES, STATES)
        )
        numbers = draw.integers(0, 10_000, 4)
        made.append(
            {
                "name": f"{first} {last}",
                "emailAddress": f"{_letters(draw, 7)}@{_letters(draw, 5)}.com",
                "creditCard": " ".join(f"{number:04d}" for number in numbers),
                "city": city,
                "state": state,
            }
        )
    return made


@lru_cache
def extras() -> list[str]:
    """What fills an event up to its size, of each of the pool; a bid's comes out again by q1."""
    draw = np.random.default_rng(SEED + 2)
    return [_filling(draw, number) for number in range(POOL)]


def _filling(draw: np.random.Generator, number: int) -> str:
    kind = int(events(np.array([number]), POOL).kind[0])
    said = {
        PERSON: lambda: NUMBER_BYTES + sum(map(len, people()[number // EPOCH].values())),
        AUCTION: lambda: 6 * NUMBER_BYTES + sum(map(len, _item(number))),
        BID: lambda: 4 * NUMBER_BYTES,
    }[kind]()
    missing = max(MEAN_BYTES[kind] - said, 0)
    spread = round(missing / 5)
    return _letters(draw, missing - spread + int(draw.integers(2 * spread + 1)))


def _item(number: int) -> tuple[str, str]:
    """Name and description."""
    draw = np.random.default_rng((SEED, number))
    return _letters(draw, int(draw.integers(3, 21))), _letters(draw, int(draw.integers(3, 101)))


def _letters(draw: np.random.Generator, count: int) -> str:
    return bytes(draw.integers(ord("a"), ord("z") + 1, count, np.uint8)).decode()


def values() -> list[bytes]:
    """The pool's events as JSON, in the form of Nexmark's Kafka source; no key for other kinds."""
    numbers = np.arange(POOL)
    own = events(numbers, POOL)
    kinds, ones, others = (column.tolist() for column in (own.kind, own.one, own.other))
    return [
        _value(kind, number, one, other, START_MS)
        for kind, number, one, other in zip(kinds, numbers.tolist(), ones, others, strict=True)
    ]


def _value(kind: int, number: int, one: int, other: int, time_ms: int) -> bytes:
    content: dict[str, Any] = {
        PERSON: lambda: {"person": {"id": one, **people()[number // EPOCH]}},
        AUCTION: lambda: {"auction": _auction(number, one, other, time_ms)},
        BID: lambda: {"bid": {"auction": one, "bidder": other, "price": _price(number)}},
    }[kind]()
    [own] = content.values()
    own |= {"dateTime": time_ms, "extra": extras()[number]}
    return json.dumps({"event_type": kind, **content}, separators=(",", ":")).encode()


def _auction(number: int, auction: int, seller: int, time_ms: int) -> dict[str, Any]:
    name, description = _item(number)
    return {
        "id": auction,
        "itemName": name,
        "description": description,
        "initialBid": _price(number),
        "reserve": 2 * _price(number),
        "expires": time_ms,
        "seller": seller,
        "category": FIRST_CATEGORY + auction % CATEGORIES,
    }


def _price(number: int) -> int:
    return int(drawn().price[number])


def _partition(numbers: np.ndarray) -> np.ndarray:
    """In turns, and each epoch the other way round: people are in all partitions."""
    return (numbers + numbers // EPOCH) % PARTITIONS


def _numbers(numbers: np.ndarray, total: int) -> Mapping[str, np.ndarray]:
    own = events(numbers, total)
    return {
        "one": own.one,
        "other": own.other,
        "time": own.time_ms,
        "expires": own.time_ms + drawn().length_ms[own.member],
    }


def _last() -> Sequence[bytes]:
    """A person and a bid, an hour later: a reader of one kind alone sees the time as well."""
    return [
        _value(PERSON, 0, LAST_ID, LAST_ID, LATER),
        _value(BID, BID_OF_LAST, LAST_ID, LAST_ID, LATER),
    ]


STREAM = Stream(
    "nexmark",
    values,
    _partition,
    {
        "one": Field((b'"id":', b'"bid":{"auction":'), ID_DIGITS),
        "other": Field((b'"seller":', b'"bidder":'), ID_DIGITS),
        "time": Field((b'"dateTime":',), TIME_DIGITS),
        "expires": Field((b'"expires":',), TIME_DIGITS),
    },
    _numbers,
    _last(),
)
