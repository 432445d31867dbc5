"""How an operator has the past counted again, and readers switched."""

import json
from typing import Any

import pytest
from typer.testing import CliRunner

from millrace.cli import app
from millrace.cluster.job_gateway import Gateway
from millrace.cluster.ssh import Follow
from millrace.common.errors import OperatorError

COUNTED = {
    "generation": 3,
    "from": "2026-01-01T00:00:00Z",
    "to": "2026-01-01T20:00:00Z",
    "counted_to": "2026-01-01T20:00:00Z",
    "open_to": "2026-01-02T00:00:00Z",
    "exclusions": [
        {"from": "2026-01-01T00:00:00Z", "to": "2026-01-01T20:00:00Z", "predicate": "status = 500"}
    ],
    "code": "v7",
    "since": "2026-01-03T00:00:00Z",
    "who": "ann on desk",
    "seen": False,
}
RANGE = ["--from", "2026-01-01T01:00+01:00", "--to", "2026-01-02T00:00Z"]
Asked = list[tuple[str, dict[str, Any], str | None]]


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> Asked:
    """What the gateway is asked; it answers as if all was done."""
    found: Asked = []
    answers: dict[str, Any] = {
        "count": COUNTED | {"rows": 1234},
        "list": {"generations": [COUNTED]},
        "show": COUNTED
        | {"changed": 5, "new": 1, "gone": 2, "sums": {"requests": [10, 25]}, "examples": ["one"]},
        "switch": {"revision": 4},
        "back": {"revision": 5},
    }

    def answer(
        _: Gateway, job: str, question: Any, version: str | None, follow: Follow | None
    ) -> dict[str, Any]:
        found.append((job, question, version))
        assert (follow is not None) == (question["do"] in ("count", "switch", "back"))
        return answers[question["do"]]

    monkeypatch.setattr(Gateway, "reconcile", answer)
    return found


def run(*arguments: str) -> Any:
    done = CliRunner().invoke(app, ["reconcile", *arguments], env={"COLUMNS": "200"})
    assert done.exception is None, done.exception
    return done


def test_a_count_says_what_it_is_of(asked: Asked) -> None:
    done = run("sessions", *RANGE, "--closed", "--without", "status = 500", "--version", "v7")
    [(job, question, version)] = asked
    assert (job, version, question.pop("who") != "") == ("sessions", "v7", True)
    assert question == {
        "do": "count",
        "start": "2026-01-01T00:00:00",
        "end": "2026-01-02T00:00:00",
        "without": "status = 500",
        "closed": True,
        "archives": {"events": {"job": "archive", "keep_days": 30}},
    }
    assert "generation 3 is counted" in done.output
    assert "windows from 2026-01-01T20:00:00Z to 2026-01-02T00:00:00Z are open" in done.output
    assert "without status = 500" in done.output


@pytest.mark.parametrize(
    ("to", "end"), [([], None), (["--to", "2026-01-02T00:00Z"], "2026-01-02T00:00:00")]
)
def test_a_count_of_all_that_the_archive_has_needs_no_time(
    asked: Asked, to: list[str], end: str | None
) -> None:
    run("sessions", "--from", "archive", *to)
    [(_, question, _)] = asked
    assert (question["start"], question["end"]) == (None, end)


def test_counts_are_listed_and_compared(asked: Asked) -> None:
    assert "ann on desk" in run("traffic").output
    shown = run("traffic", "--show", "--generation", "3")
    assert "difference" in shown.output
    assert json.loads(run("traffic", "--show", "--json").output)["sums"] == {"requests": [10, 25]}
    assert [question for _, question, _ in asked] == [
        {"do": "list"},
        {"do": "show", "generation": 3},
        {"do": "show", "generation": None},
    ]


def test_readers_are_switched_and_taken_back(asked: Asked) -> None:
    assert "revision 4" in run("traffic", "--switch", "--yes").output
    assert "revision 5" in run("traffic", "--back", "--yes").output
    assert [question["do"] for _, question, _ in asked] == ["switch", "back"]


def test_a_refusal_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Gateway, "reconcile", lambda *_: {"error": "all of these are open"})
    done = CliRunner().invoke(app, ["reconcile", "sessions", *RANGE])
    assert isinstance(done.exception, OperatorError)
    assert done.exception.message == "job sessions: all of these are open"


@pytest.mark.parametrize(
    ("arguments", "why"),
    [
        (["archive", *RANGE], "no application runs a job archive that makes rows"),
        (["nothing"], "no application runs a job nothing"),
        (["traffic", "--switch", "--back"], "one at a time: --switch and --back"),
        (["traffic", *RANGE, "--show"], "one at a time: --from and --to and --show"),
        (["traffic", "--without", "a"], "--without goes with --from and --to"),
        (["traffic", "--switch", "--version", "v1"], "--version goes with --from and --to"),
        (["traffic", *RANGE, "--generation", "1"], "--generation goes with --show or --switch"),
        (["traffic", "--from", "2026-01-01T00:00Z"], "say both --from and --to"),
        (["traffic", "--from", "yesterday", "--to", "2026-01-01T00:00Z"], "no ISO 8601 time"),
        (["traffic", "--from", "2026-01-01", "--to", "2026-01-02"], "has no zone"),
    ],
)
def test_what_does_not_go_together_is_refused_before_anybody_is_asked(
    asked: Asked, arguments: list[str], why: str
) -> None:
    done = CliRunner().invoke(app, ["reconcile", *arguments])
    assert isinstance(done.exception, OperatorError)
    assert why in done.exception.message
    assert not asked
