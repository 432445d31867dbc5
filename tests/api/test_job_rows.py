"""Pages of a declared job's rows are together all of them, and each costs no more than it may."""

import asyncio
import json
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterable, Mapping
from datetime import UTC, date, datetime, timedelta
from typing import Any

import pytest
from fastapi.testclient import TestClient
from hypothesis import example, given
from hypothesis import strategies as st
from millrace_api.cursors import Cursor
from millrace_api.job_rows import Place, RowReader
from millrace_api.kinds import PARSERS, native, parsed, written
from millrace_api.outputs import Output
from millrace_api.ranges import BadParameter, Span
from millrace_jobs.output import CQL_TYPES
from millrace_jobs.output import Output as Written

from tests.api.fakes import FakeStore

WRITTEN = Written(
    job="visits",
    table="job_visits",
    summary="Visits.",
    window_seconds=6 * 3600,
    slide_seconds=6 * 3600,
    offset_seconds=0,
    join_seconds=None,
    key={"visitor": "string", "site": "int"},
    values={"events": "bigint"},
    approximate={},
    buckets=3,
    keep_seconds=86400,
    state=[],
)
OUTPUT = Output.model_validate_json(WRITTEN.to_json())
MIDNIGHT = datetime(2015, 5, 18)
WEEK = Span(*((MIDNIGHT + n * timedelta(days=1)).replace(tzinfo=UTC) for n in (-3, 4)))
RANGE = {"from": "2015-05-15T00:00:00Z", "to": "2015-05-22T00:00:00Z"}
LOOKED_AT = 9

Key = tuple[int, str, int]  # a window's number, a visitor and a site
keys = st.tuples(st.integers(-14, 17), st.sampled_from("abcde"), st.integers(1, 3))
asked = st.fixed_dictionaries(
    {}, optional={"visitor": st.sampled_from("abcde"), "site": st.integers(1, 3)}
)


MANY = {
    (window, visitor, site) for window in range(12) for visitor in "abcde" for site in (1, 2, 3)
}


def stored(key: Key) -> dict[str, Any]:
    window, visitor, site = key
    start = MIDNIGHT + window * timedelta(hours=6)
    values = {"window_start": start, "visitor": visitor, "site": site, "events": 1}
    return dict(zip(WRITTEN.columns, WRITTEN.row(values, version=1), strict=True))


def matching(found: Iterable[Key], wanted: Mapping[str, Any]) -> set[Key]:
    """In the range, and with these columns."""
    return {
        key
        for key in found
        if WEEK.start <= stored(key)["window_start"].replace(tzinfo=UTC) < WEEK.end
        and wanted.items() <= stored(key).items()
    }


def table(found: Iterable[Key]) -> FakeStore:
    return FakeStore(described=[WRITTEN.to_json()], job_table=[*map(stored, found)])


def page_after(
    store: FakeStore, wanted: Mapping[str, Any], after: Place | None, limit: int
) -> tuple[list[Key], Place | None]:
    reader = RowReader(store, OUTPUT, LOOKED_AT)
    page = asyncio.run(reader.page(WEEK, wanted, after, limit))
    hours = [row.place.start - MIDNIGHT.replace(tzinfo=UTC) for row in page.rows]
    found = [
        (since // timedelta(hours=6), row.values["visitor"], row.values["site"])
        for since, row in zip(hours, page.rows, strict=True)
    ]
    return found, page.more


@given(st.sets(keys, max_size=80), asked, st.integers(1, 7))
@example(MANY, {"site": 2}, 2)
@example(MANY, {"visitor": "c"}, 7)
@example(MANY, {}, 5)
def test_pages_together_are_the_whole_and_each_row_comes_once(
    found: set[Key], wanted: dict[str, Any], limit: int
) -> None:
    store = table(found)
    seen: list[Key] = []
    after = None
    for _ in range(2 * len(found) + 2):
        store.rows_read = 0
        page, after = page_after(store, wanted, after, limit)
        assert len(page) <= limit
        at_most = {0: WRITTEN.buckets * 2 * (limit + 1), 1: 2 * LOOKED_AT, 2: 7 * 4}
        assert store.rows_read <= at_most[len(wanted)]
        seen += page
        if after is None:
            break
    assert after is None
    assert len(seen) == len(set(seen))
    assert set(seen) == matching(found, wanted)
    windows = [window for window, *_ in seen]
    assert windows == sorted(windows, reverse=True)


@given(st.sets(keys, max_size=40), st.lists(st.sets(keys), max_size=9), asked, st.integers(1, 5))
def test_rows_that_are_there_all_the_time_come_once_whatever_else_is_written(
    stay: set[Key], others: list[set[Key]], wanted: dict[str, Any], limit: int
) -> None:
    """Between any two pages all other rows are replaced by others."""
    seen: list[Key] = []
    after = None
    changes = iter(others)
    for _ in range(500):
        page, after = page_after(table(stay | next(changes, set())), wanted, after, limit)
        seen += page
        if after is None:
            break
    assert after is None
    of_them = [key for key in seen if key in stay]
    assert sorted(of_them) == sorted(matching(stay, wanted))


def made_of(cursor: Cursor, **changes: Any) -> str:
    fields = json.loads(cursor.model_dump_json()) | changes
    return urlsafe_b64encode(json.dumps(fields, default=str).encode()).decode()


# --- over HTTP -----------------------------------------------------------------------------------


@pytest.fixture
def _job(store: FakeStore) -> None:
    store.described = [WRITTEN.to_json()]
    store.job_table = [
        stored((window, visitor, site))
        for window in range(-3, 4)
        for visitor in "abc"
        for site in (1, 2)
    ]


@pytest.mark.usefixtures("_job")
@pytest.mark.parametrize("wanted", [{}, {"visitor": "b"}, {"visitor": "b", "site": "2"}])
def test_a_client_follows_the_links_to_the_last_row(
    client: TestClient, wanted: dict[str, str]
) -> None:
    url: str | None = "/v1/jobs/visits?limit=4&" + "&".join(
        f"{name}={value}" for name, value in (RANGE | wanted).items()
    )
    seen = []
    while url:
        answer = client.get(url)
        assert answer.status_code == 200, answer.text
        told = answer.json()
        assert told["truncated"] == (told["next"] is not None)
        seen += [(one["window_start"], one["visitor"], one["site"]) for one in told["rows"]]
        link = answer.links.get("next")
        url = link and str(answer.url.join(link["url"]))
    assert len(seen) == len(set(seen)) == 7 * (1 if "site" in wanted else 2 if wanted else 6)


@pytest.mark.usefixtures("_job")
def test_a_cursor_is_refused_where_it_does_not_belong(client: TestClient) -> None:
    path = "/v1/jobs/visits"
    cursor = client.get(path, params=RANGE | {"limit": 1}).json()["next"]
    assert client.get(path, params=RANGE | {"cursor": cursor}).status_code == 200
    own = Cursor.model_validate_json(urlsafe_b64decode(cursor))
    for spoiled in (
        "",
        "%",
        "é",
        cursor[:-8],
        cursor.swapcase(),
        "bnVsbA==",  # null
        made_of(own, key=["a"]),
        made_of(own, key=["a", "x"]),
        made_of(own, key=["\ud800", "1"]),
        made_of(own, bucket=WRITTEN.buckets),
        made_of(own, bucket=-1),
        made_of(own, at=own.at + timedelta(days=30)),
        made_of(own, at=datetime(9999, 12, 31, tzinfo=UTC)),
        made_of(own, about="another"),
    ):
        answer = client.get(path, params=RANGE | {"cursor": spoiled})
        assert (answer.status_code, answer.json()["parameter"]) == (422, "cursor"), spoiled
    for other in (RANGE | {"visitor": "a"}, RANGE | {"to": "2015-05-20T00:00:00Z"}):
        answer = client.get(path, params=other | {"cursor": cursor})
        assert (answer.status_code, answer.json()["parameter"]) == (422, "cursor")


# --- values of keys ------------------------------------------------------------------------------

VALUES: dict[str, st.SearchStrategy[Any]] = {
    "string": st.text(),
    "int": st.integers(-(2**31), 2**31 - 1),
    "bigint": st.integers(-(2**63), 2**63 - 1),
    "double": st.floats(allow_nan=False, allow_infinity=False),
    "boolean": st.booleans(),
    "date": st.dates(),
    "timestamp": st.datetimes(datetime(1000, 1, 2), datetime(9998, 12, 31)),
    "binary": st.binary(max_size=100),
}


def test_every_kind_that_a_job_may_store_can_be_asked_for() -> None:
    assert PARSERS.keys() == CQL_TYPES.keys() == VALUES.keys()


@given(st.sampled_from([*VALUES]).flatmap(lambda kind: st.tuples(st.just(kind), VALUES[kind])))
def test_a_value_that_is_written_is_parsed_again(of_kind: tuple[Any, Any]) -> None:
    kind, value = of_kind
    assert parsed("key", kind, written(value)) == value


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("int", "2147483648"),
        ("int", "1_000"),
        ("int", "１"),
        ("int", ""),
        ("bigint", "9223372036854775808"),
        ("bigint", "9" * 5000),
        ("double", "much"),
        ("boolean", "yes"),
        ("date", "2015-02-30"),
        ("timestamp", "0001-01-01T00:00:00+14:00"),
        ("timestamp", "2015-05-17"),
        ("binary", "0x"),
        ("string", "x" * 65_536),
    ],
)
def test_what_is_no_value_is_refused_by_the_column_in_few_words(kind: Any, text: str) -> None:
    with pytest.raises(BadParameter) as refusal:
        parsed("site", kind, text)
    assert refusal.value.parameter == "site"
    assert len(str(refusal.value)) < 300


def test_the_drivers_own_dates_are_dates() -> None:
    from cassandra.util import Date

    assert native(Date("2015-05-17")) == date(2015, 5, 17)
    assert written(Date("2015-05-17")) == "2015-05-17"
