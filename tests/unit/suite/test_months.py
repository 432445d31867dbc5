"""End-to-end tests share a cluster: each has a stretch of event time that no other one uses."""

from datetime import UTC, datetime, timedelta

import pytest

from tests.e2e.support import used_months

FIRST = datetime(2015, 5, 17, 10, 5, tzinfo=UTC)
MONTH = timedelta(days=28)


@pytest.mark.parametrize(
    ("newest", "used"),
    [
        (None, 0),
        (FIRST - timedelta(days=1), 0),
        (FIRST, 1),
        (FIRST + timedelta(days=3), 1),
        (FIRST.replace(minute=0) + MONTH, 2),  # one event, before the log's first one there
        (FIRST + MONTH + timedelta(days=3), 2),
    ],
)
def test_a_month_with_an_event_is_used_up(newest: datetime | None, used: int) -> None:
    assert used_months(FIRST, newest, MONTH) == used
