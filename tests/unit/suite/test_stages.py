"""The suite's own graph: what may begin when, and what is left when a stage fails."""

import os
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.common.console import Console
from tests import run as suite
from tests import stages
from tests.stages import Result, Stage

QUIET = Console(quiet=True)


def named(name: str, *needs: str) -> Stage:
    return Stage(name, [sys.executable, "-c", ""], needs)


def test_a_stage_begins_when_what_it_needs_has_passed() -> None:
    up, deploy = named("up", "setup"), named("deploy", "up")
    assert stages.ready([up, deploy], ["setup"], [], 2) == []
    assert stages.ready([up, deploy], [], ["setup"], 2) == [up]
    assert stages.ready([deploy], [], ["setup", "up"], 2) == [deploy]


def test_no_more_begin_than_may_run_at_once() -> None:
    free = [named(name) for name in "abc"]
    assert stages.ready(free, [], [], 2) == free[:2]
    assert stages.ready(free, ["x"], [], 2) == free[:1]
    assert stages.ready(free, ["x", "y"], [], 2) == []


def test_a_circle_and_an_unknown_need_are_refused() -> None:
    with pytest.raises(ValueError, match="no stage can begin: a, b"):
        stages.ready([named("a", "b"), named("b", "a")], [], [], 2)
    with pytest.raises(ValueError, match="no stage can begin: a"):
        stages.ready([named("a", "nothing")], [], [], 2)


@given(st.lists(st.sets(st.integers(0, 9)), max_size=10), st.integers(1, 3))
def test_every_stage_of_a_graph_begins_once_and_after_its_needs(
    needs: list[set[int]], at_once: int
) -> None:
    waiting = [
        named(str(n), *(str(need) for need in needed if need < n)) for n, needed in enumerate(needs)
    ]
    passed: list[str] = []
    while waiting:
        begun = stages.ready(waiting, [], passed, at_once)
        assert 1 <= len(begun) <= at_once
        assert all({*stage.needs} <= {*passed} for stage in begun)
        passed += [stage.name for stage in begun]
        waiting = [stage for stage in waiting if stage not in begun]
    assert passed == [*dict.fromkeys(passed)]


def ran(tmp_path: Path, *chosen: Stage) -> dict[str, bool]:
    results = stages.run(chosen, QUIET, tmp_path, os.environ)
    return {result.stage: result.failed for result in results}


def test_all_stages_of_a_run_are_done(tmp_path: Path) -> None:
    assert ran(tmp_path, named("b", "a"), named("a")) == {"a": False, "b": False}


def test_none_begins_after_one_has_failed_and_what_runs_ends(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """``slow`` runs until the failure of ``broken`` has been shown."""
    mark = tmp_path / "shown"
    monkeypatch.setattr(stages, "_show", lambda *_: mark.touch())
    until = f"import os, time\nwhile not os.path.exists({str(mark)!r}): time.sleep(0.01)"
    slow = Stage("slow", [sys.executable, "-c", until])
    broken = Stage("broken", [sys.executable, "-c", "raise SystemExit(3)"])
    found = ran(tmp_path, slow, broken, named("next", "slow"))
    assert found == {"broken": True, "slow": False}


def test_what_a_stage_printed_is_shown_whole_and_as_text(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    talking = Stage("talking", [sys.executable, "-c", "print('[/red] as it is')"])
    stages.run([talking], Console(), tmp_path, os.environ)
    assert "[/red] as it is" in capsys.readouterr().out


def test_a_recorded_run_stands_beside_the_next(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(stages, "pace", lambda: 0.8)
    monkeypatch.setattr(stages.subprocess, "run", lambda *_, **__: Commit())
    (tmp_path / "tests").mkdir()
    results = [Result("up", 0, 200, False), Result("deploy", 100, 250, False)]
    stages.record(results, tmp_path)
    assert stages.newest(tmp_path / stages.TIMES) == {"up": "200", "deploy": "250", "all": "350"}
    stages.report([Result("up", 0, 111, True)], Console(width=100), tmp_path / stages.TIMES)
    told = capsys.readouterr().out
    assert [word for word in ("111", "200", "failed") if word not in told] == []


class Commit:
    stdout = "0123456789ab\n"


@pytest.mark.parametrize(("fast", "everything"), [(True, False), (False, False), (False, True)])
def test_the_suites_needs_are_stages_of_it(fast: bool, everything: bool) -> None:
    chosen = suite.suite(fast, everything)
    waiting, passed = list(chosen), list[str]()
    while waiting:
        for stage in stages.ready(waiting, [], passed, len(waiting)):
            waiting.remove(stage)
            passed.append(stage.name)
    assert sorted(passed) == sorted({stage.name for stage in chosen})


def test_drills_and_controls_end_a_whole_run() -> None:
    """Today's traffic ends the log's free months, and controls spoil what is stored."""
    chosen = {stage.name: stage for stage in suite.suite(fast=False, everything=True)}
    assert "extended: end to end" in chosen["drills"].needs
    assert [name for name, stage in chosen.items() if "controls" in stage.needs] == []
