"""The step runner: side by side, and one failure doesn't stop the others."""

import io
import re
import threading

import pytest

from millrace.common.console import Console
from millrace.common.errors import OperatorError
from millrace.setup.steps import Step, run_steps
from tests.waiting import PATIENCE_SECONDS


@pytest.fixture
def console() -> Console:
    return Console(file=io.StringIO(), force_terminal=False, width=200)


def fail(report):
    raise OperatorError("the disk is full", "make room")


def test_independent_steps_run_side_by_side(console):
    meeting = threading.Barrier(2, timeout=PATIENCE_SECONDS)
    run_steps([Step("a", lambda r: meeting.wait()), Step("b", lambda r: meeting.wait())], console)


def test_a_failing_step_is_told_and_the_others_finish(console):
    done = threading.Event()
    with pytest.raises(OperatorError) as refused:
        run_steps([Step("bad", fail), Step("good", lambda report: done.set())], console)
    assert done.is_set()
    assert refused.value.message == "bad: the disk is full\n  -> make room"
    assert "run the same command again" in refused.value.hint


def test_what_needs_a_failed_step_is_skipped(console):
    ran = []
    steps = [Step("image", ran.append, needs=["engine"]), Step("engine", fail)]
    with pytest.raises(OperatorError) as refused:
        run_steps(steps, console)
    assert not ran
    assert "image" not in refused.value.message
    assert "image: skipped: needs engine" in console.file.getvalue()


def test_a_step_waits_for_what_it_needs(console):
    order = []
    steps = [
        Step("image", lambda report: order.append("image"), needs=["engine"]),
        Step("engine", lambda report: order.append("engine")),
    ]
    run_steps(steps, console)
    assert order == ["engine", "image"]


def test_our_own_bug_keeps_its_traceback(console):
    def bug(report):
        raise KeyError("oops")

    with pytest.raises(KeyError):
        run_steps([Step("bug", bug), Step("bad", fail)], console)


def test_a_log_gets_one_plain_line_per_event(console):
    run_steps([Step("kafka", lambda report: report("downloading [94] jars"))], console)
    events = [line.split("s  ", 1)[1] for line in console.file.getvalue().splitlines()]
    assert events == ["kafka: downloading [94] jars", "kafka: done after 0 s"]


def test_a_terminal_gets_one_line_per_step():
    console = Console(file=io.StringIO(), force_terminal=True, width=100, color_system=None)
    run_steps([Step("kafka", lambda r: r("4.3.1")), Step("spark", lambda r: None)], console)
    screen = console.file.getvalue().splitlines()
    assert re.search(r"✓ +kafka +0 s +4\.3\.1", [line for line in screen if "kafka" in line][-1])
    assert re.search(r"✓ +spark +0 s", [line for line in screen if "spark" in line][-1])
