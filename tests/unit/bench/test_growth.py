"""Growth: what must come of a run, what is no right result, the tables."""

import json
from collections import Counter
from dataclasses import replace
from datetime import datetime
from typing import Any

import pytest

from bench import report
from bench.growth.__main__ import runs_of
from bench.growth.sizes import DIMENSIONS, HOUR, SLOT, WINDOWS, Size, Truth, right, truth
from bench.pool import Pool
from tests.unit.bench.test_load import read_records

EVENTS = 3000
ENDED_MS = 1_800_000_000_000 // HOUR * HOUR
SIZE = Size(urls=50, partitions=4, hours=2)


@pytest.fixture(scope="module")
def sent() -> list[dict[str, Any]]:
    spec = SIZE.spec(EVENTS, ENDED_MS)
    pool = Pool(spec)
    pool.start(spec.started_ms)
    return [
        json.loads(value)
        for batch in pool.batches(0, EVENTS)
        for _, _, value in read_records(batch.records.tobytes())
    ]


@pytest.fixture(scope="module")
def expected() -> Truth:
    return truth(SIZE.spec(EVENTS, ENDED_MS), EVENTS)


def ms(event: dict[str, Any]) -> int:
    return round(1000 * datetime.fromisoformat(event["event_time"]).timestamp())


class TestTruth:
    def test_windows_are_what_naive_loops_count_in_what_was_sent(
        self, sent: list[dict[str, Any]], expected: Truth
    ) -> None:
        requests, sizes = Counter[str](), Counter[str]()
        for event in sent:
            for window, length in WINDOWS.items():
                name = f"{window} {ms(event) // length * length}"
                requests[name] += 1
                sizes[name] += event["bytes"]
        assert expected.windows == {name: (requests[name], sizes[name]) for name in requests}

    def test_slots_and_urls_are_those_of_what_was_sent(
        self, sent: list[dict[str, Any]], expected: Truth
    ) -> None:
        assert expected.slots == len({(e["visitor_id"], ms(e) // SLOT) for e in sent})
        assert expected.urls == len({event["url"] for event in sent})

    def test_events_fill_the_hours_and_none_is_of_times_to_come(
        self, sent: list[dict[str, Any]]
    ) -> None:
        hours = Counter(ms(event) // HOUR for event in sent)
        assert max(map(ms, sent)) < ENDED_MS
        assert {hour for hour, count in hours.items() if count > EVENTS // 4} == {
            ENDED_MS // HOUR - 2,
            ENDED_MS // HOUR - 1,
        }


def found(expected: Truth, **changes: Any) -> dict[str, Any]:
    """What the program says when all is right, but for the changes."""
    windows = json.loads(json.dumps(dict(expected.windows)))
    own = {"read": [EVENTS], "dropped": 0, "state_rows": expected.slots, "windows": [windows]}
    return own | changes


class TestRight:
    def test_what_was_sent_is(self, expected: Truth) -> None:
        assert right(SIZE, EVENTS, found(expected), expected)
        assert right(replace(SIZE, job="sessions"), EVENTS, found(expected), expected)

    @pytest.mark.parametrize("changes", [{"read": [EVENTS - 1]}, {"dropped": 1}, {"windows": [{}]}])
    def test_less_is_not(self, changes: dict[str, Any], expected: Truth) -> None:
        assert not right(SIZE, EVENTS, found(expected, **changes), expected)

    def test_each_job_counts(self, expected: Truth) -> None:
        windows = found(expected)["windows"] * 2
        two, read = replace(SIZE, jobs=2), [EVENTS, EVENTS]
        assert right(two, EVENTS, found(expected, read=read, windows=windows), expected)
        windows[1] = {window: [1, 1] for window in windows[1]}
        assert not right(two, EVENTS, found(expected, read=read, windows=windows), expected)

    def test_a_slot_more_is_not(self, expected: Truth) -> None:
        more = found(expected, state_rows=expected.slots + 1)
        assert not right(replace(SIZE, job="sessions"), EVENTS, more, expected)


def test_growth_is_tenfold_and_more() -> None:
    assert max(DIMENSIONS["URLs"]) == 100 * min(DIMENSIONS["URLs"])
    assert max(DIMENSIONS["partitions"]) == 10 * min(DIMENSIONS["partitions"])


def test_values_stand_beside_the_first_by_repetition() -> None:
    sizes = DIMENSIONS["jobs"]
    runs = [
        run
        for slow in (1, 2)
        for run in runs_of(
            {"jobs": sizes},
            {
                size: {
                    "core_us_per_event": 10.0 * slow * size.jobs,
                    "correct": True,
                    "urls": 5,
                    "batch_ms": 7,
                    "state_rows": 62,
                    "state_bytes": 1000,
                }
                for size in sizes.values()
            },
        )
    ]
    settings = {"events": 100, "batch": 10}
    record = {"kind": "growth", "settings": settings, "result": {"about": "it", "runs": runs}}
    [section] = report.sections(record)
    assert [row[0] for row in section.rows] == ["1", "2", "4"]
    assert [row[2] for row in section.rows] == [
        "1.00 (1.00–1.00)",
        "2.00 (2.00–2.00)",
        "4.00 (4.00–4.00)",
    ]
    assert {row[-1] for row in section.rows} == {"2 of 2"}
