"""The books, as an operator asks for them."""

import json
from collections.abc import Callable
from datetime import UTC, date, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from millrace.cli import app, ledger
from millrace.cluster.books import Entry, Position
from millrace.common.exits import Exit

NOON = datetime(2026, 1, 31, 12, tzinfo=UTC)
ENTRIES = st.lists(
    st.builds(
        Entry,
        st.sampled_from(["events", "clicks"]),
        st.datetimes(datetime(2026, 1, 31), datetime(2026, 1, 31, 23, 59)).map(
            lambda time: time.replace(tzinfo=UTC)
        ),
        st.none() | st.integers(0, 9),
        st.integers(0, 9),
        st.integers(0, 9),
        st.integers(0, 9),
    )
)


def entry(minute: int, records: int | None, archived: int, letters: int = 0) -> Entry:
    return Entry("events", NOON + timedelta(minutes=minute), records, archived, letters, 0)


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[date]]:
    """Lets the books have these entries; gives the days that were asked for."""

    def have(*found: Entry, unwritten: int = 0) -> list[date]:
        asked: list[date] = []

        def entries(_: Any, streams: list[str], day: date) -> list[Entry]:
            assert "events" in streams
            asked.append(day)
            return [one for one in found if one.committed.date() == day]

        positions = {"events": Position(NOON, unwritten)}
        kept = SimpleNamespace(entries=entries, positions=lambda *_: positions)
        monkeypatch.setattr(ledger, "books", kept)
        return asked

    return have


def typed(*words: str) -> Any:
    return CliRunner().invoke(app, ["ledger", *words])


def of_that_day(*words: str) -> Any:
    return typed("--day", "2026-01-31", *words)


def test_books_that_come_out_even(service: Callable[..., list[date]]) -> None:
    asked = service(entry(0, 10, 8, 2), entry(1, 5, 5), entry(61, 3, 3))
    told = of_that_day("--json")
    assert told.exit_code == 0
    assert asked == [date(2026, 1, 31)]
    found = json.loads(told.stdout)
    hours = [(row["start"], row["records"], row["dead_letters"]) for row in found["spans"]]
    assert hours == [("2026-01-31T12:00:00Z", 15, 2), ("2026-01-31T13:00:00Z", 3, 0)]
    assert found["spans_total"]["archived"] == 16
    assert found["positions"] == {"events": {"closed": "2026-01-31T12:00:00Z", "unwritten": 0}}


def test_what_differs_is_shown_by_the_minute(service: Callable[..., list[date]]) -> None:
    service(entry(0, 10, 8), entry(1, 5, 7), entry(2, 5, 5))
    told = of_that_day("--json")
    assert told.exit_code == Exit.NOT_PASSED
    found = json.loads(told.stdout)
    assert [row["difference"] for row in found["spans"]] == [4]
    assert [(row["start"], row["difference"]) for row in found["differing"]] == [
        ("2026-01-31T12:00:00Z", 2),
        ("2026-01-31T12:01:00Z", 2),
    ]


def test_what_differs_is_shown_for_a_day_whatever_the_date_is(
    service: Callable[..., list[date]],
) -> None:
    now = datetime.now(UTC)
    service(*(Entry("events", now - timedelta(hours=ago), 10, 8, 0, 0) for ago in (1, 23, 25)))
    told = typed("--json")
    assert told.exit_code == Exit.NOT_PASSED
    assert json.loads(told.stdout)["differing_total"]["difference"] == 4


def test_minutes(service: Callable[..., list[date]]) -> None:
    service(entry(0, 10, 10), entry(1, None, 5), entry(1, 3, 3))
    found = json.loads(of_that_day("--minutes", "--json").stdout)
    assert [(row["start"][11:16], row["records"]) for row in found["spans"]] == [
        ("12:00", 10),
        ("12:01", None),  # Kafka has forgotten some of them
    ]


def test_people_see_how_far_the_books_are_kept(service: Callable[..., list[date]]) -> None:
    service()
    told = typed()
    assert told.exit_code == 0
    assert "events: closed up to" in told.stdout
    assert "clicks: the books have yet to begin" in told.stdout


def test_what_was_read_last_and_not_archived(service: Callable[..., list[date]]) -> None:
    service(entry(0, 10, 10), unwritten=9)
    told = of_that_day()
    assert told.exit_code == Exit.NOT_PASSED
    assert "9 records were read since" in told.stdout


@given(ENTRIES, st.sampled_from([ledger.HOUR, ledger.MINUTE]))
def test_no_entry_is_left_out_of_the_table(found: list[Entry], span: timedelta) -> None:
    table = ledger.spans_table(found, span, "")
    for name in ("archived", "dead_letters", "skipped", "difference"):
        assert table.foot
        assert table.foot[name] == sum(row[name] for row in table.rows)
    assert sum(row["archived"] for row in table.rows) == sum(one.archived for one in found)
    assert (table.foot["difference"] > 0) == any(one.difference for one in found)
