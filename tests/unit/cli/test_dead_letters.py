"""Dead letters, as an operator asks for them."""

from datetime import UTC, date, datetime, timedelta
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from typer.testing import CliRunner

from millrace.cli import app
from millrace.cli import dead_letters as commands
from millrace.cli.dead_letters import Reason, reasons_of
from millrace.cluster.dead_letters import Counted, Quarantined, place_of
from millrace.common.errors import OperatorError

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
MINUTE = timedelta(minutes=1)
LEFT_OUT = Quarantined("sessions", "events-0-7", "[DIVIDE_BY_ZERO] no", NOON)
RETRIED = Quarantined("sessions", "events-1-7", "[DIVIDE_BY_ZERO] no", NOON, NOON + MINUTE)


@pytest.fixture
def service(monkeypatch: pytest.MonkeyPatch) -> list[date]:
    """What was asked for; the counts of each day are the same."""
    asked: list[date] = []

    def counted(_: Any, days: list[date]) -> list[Counted]:
        asked.extend(days)
        return [
            Counted("not JSON", 3, NOON),
            Counted("not JSON", 4, NOON + MINUTE),
            Counted("sessions: ValueError: [no]", 1, NOON),
        ]

    record = SimpleNamespace(
        timestamp=lambda: (1, int(NOON.timestamp() * 1000)), value=lambda: b'{"bytes":[0]} \xff'
    )
    fake = SimpleNamespace(
        counted=counted,
        quarantined=lambda _, jobs: [LEFT_OUT, RETRIED] if "sessions" in jobs else [],
        record=lambda _, place: record,
        place_of=place_of,
    )
    monkeypatch.setattr(commands, "dead_letters", fake)
    return asked


def typed(*words: str) -> Any:
    return CliRunner().invoke(app, ["dead-letters", *words])


def test_reasons_are_added_up_and_a_job_s_own_are_told_from_others() -> None:
    found = [
        Counted("sessions: no", 2, NOON + MINUTE),
        Counted("method: no", 1, NOON),
        Counted("sessions: no", 1, NOON),
    ]
    assert reasons_of(found, ["sessions"]) == [
        Reason("sessions", "no", 3, NOON, NOON + MINUTE),
        Reason(None, "method: no", 1, NOON, NOON),
    ]


def test_they_are_listed_by_reason(service: list[date]) -> None:
    shown = typed("list", "--days", "1")
    assert shown.exit_code == 0
    lines = [[cell.strip() for cell in line.split("│")] for line in shown.output.splitlines()]
    rows = [line[1:4] for line in lines if len(line) > 3]
    assert rows == [["not JSON", "–", "7"], ["ValueError: [no]", "sessions", "1"]]
    assert len(service) == 2  # the day began before


def test_what_a_job_leaves_out_is_listed_one_by_one(service: list[date]) -> None:
    shown = typed("list", "--job", "sessions").output
    assert "events-0-7" in shown
    assert "[DIVIDE_BY_ZERO] no" in shown
    assert "2026-01-01 12:01:00 UTC" in shown  # when the other one was retried


def test_a_job_that_leaves_nothing_out_is_refused(service: list[date]) -> None:
    refused = typed("list", "--job", "traffic")
    assert isinstance(refused.exception, OperatorError)
    assert "those are: sessions" in refused.exception.message


def test_one_is_shown_with_its_bytes_and_the_error(service: list[date]) -> None:
    shown = typed("show", "events-0-7").output
    assert "left out by sessions since 2026-01-01 12:00:00 UTC: [DIVIDE_BY_ZERO] no" in shown
    assert '{"bytes":[0]} \ufffd' in shown
    assert "left out by no job" in typed("show", "events-0-8").output
    assert "counted by it 2026-01-01 12:01:00 UTC" in typed("show", "events-1-7").output


@pytest.fixture
def asked(service: list[date], monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What a driver is asked, once the archives are as far as the streams; it counts record 7."""
    steps: list[Any] = []

    def ask(plan: Any, path: str, question: dict[str, Any], seconds: float) -> dict[str, Any]:
        steps.append((path, question["records"], seconds))
        return {
            "outcomes": [
                {"id": id, "counted": id.endswith("-0-7"), "what": "counted"}
                for id in question["records"]
            ]
        }

    monkeypatch.setattr(commands, "zookeeper", SimpleNamespace(ask=ask))
    monkeypatch.setattr(
        "millrace.audit.declared.await_archives", lambda plan, job, wait: steps.append(job)
    )
    return steps


def test_all_that_is_still_left_out_is_retried(asked: list[Any]) -> None:
    done = typed("retry", "sessions", "--wait", "60s")
    assert done.exit_code == 0
    [first, (path, records, seconds)] = asked
    assert first == "sessions"
    assert path.endswith("/sessions/retry")
    assert (records, seconds) == (["events-0-7"], 60)


def test_what_is_asked_for_is_retried_and_what_is_not_counted_fails_the_command(
    asked: list[Any],
) -> None:
    done = typed("retry", "sessions", "events-0-7", "events-1-7")
    assert done.exit_code == 1
    assert asked[1][1] == ["events-0-7", "events-1-7"]
    assert typed("retry", "sessions", "events-0-7").exit_code == 0


def test_a_malformed_record_is_not_retried_but_sent_again(asked: list[Any]) -> None:
    refused = typed("retry", "sessions", "events-0-9")
    assert isinstance(refused.exception, OperatorError)
    assert "its producer sends it again" in (refused.exception.hint or "")
    assert asked == []


def test_where_nothing_is_left_out_nobody_is_asked(
    asked: list[Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(commands.dead_letters, "quarantined", lambda *_: [RETRIED])
    done = typed("retry", "sessions")
    assert done.exit_code == 0
    assert asked == []


@given(st.from_regex(r"[a-z][a-z0-9-]*", fullmatch=True), st.integers(0), st.integers(0))
def test_an_id_names_a_place(topic: str, partition: int, offset: int) -> None:
    place = place_of(f"{topic}-{partition % 1000}-{offset % 10**12}")
    assert (place.topic, place.partition, place.offset) == (
        topic,
        partition % 1000,
        offset % 10**12,
    )


@pytest.mark.parametrize("letter", ["", "events", "events-1", "events-a-1", "-1-1", "events-1-"])
def test_what_is_no_id_is_refused_with_what_one_is(letter: str) -> None:
    with pytest.raises(OperatorError, match="TOPIC-PARTITION-OFFSET"):
        place_of(letter)
