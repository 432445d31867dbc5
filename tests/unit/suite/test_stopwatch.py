"""No test's outcome says how fast the machine is; and what finds those that do, by examples."""

import textwrap
from pathlib import Path

import pytest

from millrace.common.paths import REPO
from tests.stopwatch import BY_DEFAULT, COMPARES, DEADLINE, IMPATIENT, SLEEPS, findings

TESTS = REPO / "tests"
# Has the one clock that may be looked at; and what breaks a service on purpose, in its programs.
EXEMPT = {TESTS / "waiting.py", *(TESTS / "drills" / "sabotage").glob("*.py")}
FILES = sorted(set(TESTS.rglob("*.py")) - EXEMPT)


@pytest.mark.parametrize("path", FILES, ids=lambda path: str(path.relative_to(TESTS)))
def test_no_test_says_how_fast_the_machine_is(path: Path) -> None:
    found = [
        f"{path.relative_to(REPO)}:{one.line} {one.what}" for one in findings(path.read_text())
    ]
    assert not found, "\n".join(found)


def found_in(code: str) -> list[str]:
    return [one.what for one in findings(textwrap.dedent(code))]


REFUSED = {
    "a difference": "began = time.monotonic(); f(); assert time.monotonic() - began < 1",
    "another clock": "began = time.process_time(); assert time.process_time() - began < 1",
    "a clock by its own name": """
        from time import perf_counter as clock
        began = clock()
        assert clock() - began < 1
    """,
    "a loop's clock": "began = loop.time(); f(); assert loop.time() - began < 1",
    "a difference with a name": "a = time.time(); took = time.time() - a; assert took < 1",
    "both bounds": "a = time.time(); took = time.time() - a; assert 1 <= took < 4",
    "two moments": "a = time.time(); b = time.time(); assert b - a < 1",
    "nanoseconds": "a = time.time_ns(); assert (time.time_ns() - a) / 1e9 < 1",
    "about so long": "a = time.time(); assert time.time() - a == pytest.approx(1, abs=0.1)",
    "the least of some": """
        tries = []
        for _ in range(3):
            began = time.process_time()
            tries.append(time.process_time() - began)
        took = min(tries)
        assert took < 1
    """,
    "between moments that a callback notes": """
        def test():
            told = []
            run(lambda: told.append(time.monotonic()))
            gaps = [later - earlier for earlier, later in pairwise(told)]
            assert min(gaps) >= 5
    """,
    "a moment that an object keeps": """
        def test():
            here.began = time.monotonic()
            assert time.monotonic() - here.began < 1
    """,
    "what a helper measures": """
        def took(call):
            began = time.monotonic()
            call()
            return time.monotonic() - began
        def test():
            assert took(f) < 1
    """,
    "of a closure": """
        def test():
            began = time.monotonic()
            def fast():
                return time.monotonic() - began < 1
            assert fast()
    """,
    "a verdict with a name": "a = time.time(); fast = time.time() - a < 1; assert fast",
    "a failure by hand": "a = time.time()\nif time.time() - a > 1: pytest.fail()",
    "a deadline": "deadline = time.monotonic() + 5; f(); assert time.monotonic() < deadline",
    "a loop with a deadline": "end = time.time() + 5\nwhile not f() and time.time() < end: pass",
    "the calendar's": "a = datetime.now(UTC); assert datetime.now(UTC) - a < timedelta(seconds=1)",
    "in seconds": "a = datetime.now(UTC); assert (datetime.now(UTC) - a).total_seconds() < 1",
    "moments of another host": "before = time.time(); f(); assert found > before - 60",
}
IMPATIENTLY = {
    "an event": "assert begun.wait(5)",
    "a thread": "thread.join(0.2)",
    "a thread, by name": "thread.join(timeout=5)",
    "a future": "answer.result(timeout=10)",
    "a process": "process.wait(10)",
    "a program": "subprocess.run(command, timeout=10)",
    "its output": "process.communicate(timeout=10)",
    "a task": "asyncio.run(asyncio.wait_for(scene(), 5))",
    "a task, by a name": "LONGEST = 5\nasyncio.run(asyncio.wait_for(scene(), LONGEST))",
    "half of a name": "SECONDS = 20.0\nover.wait(SECONDS / 2)",
    "a block": "asyncio.run(f())\nasync def f():\n    async with asyncio.timeout(5): pass",
    "a condition": "wait_until(lambda: told, 10, 'it is told')",
    "a socket": "link.settimeout(2)",
    "a connection": "socket.create_connection(address, 1)",
    "a page": "urllib.request.urlopen(url, timeout=5)",
    "a barrier": "threading.Barrier(2, timeout=5)",
    "each of several": "for one in posted: one.result(1)",
}
ASLEEP = {
    "a nap": "time.sleep(0.3)",
    "a nap with a name": "NAP = 0.3\ntime.sleep(NAP)",
    "by its own name": "from time import sleep\nsleep(1)",
    "of a task": "asyncio.run(f())\nasync def f():\n    await asyncio.sleep(0.05)",
    "in a function in a loop": "while f():\n    def g(): time.sleep(1)",
}


@pytest.mark.parametrize("code", REFUSED.values(), ids=REFUSED)
def test_no_duration_of_the_machine_is_compared(code: str) -> None:
    assert found_in(code) == [COMPARES]


@pytest.mark.parametrize("code", IMPATIENTLY.values(), ids=IMPATIENTLY)
def test_who_waits_has_patience(code: str) -> None:
    assert found_in(code) == [IMPATIENT]


@pytest.mark.parametrize("code", ASLEEP.values(), ids=ASLEEP)
def test_nobody_sleeps_until_something_will_have_happened(code: str) -> None:
    assert found_in(code) == [SLEEPS]


def test_what_waits_for_a_short_time_by_itself_is_told_to_wait_longer() -> None:
    assert found_in("httpx.get(url)") == [BY_DEFAULT]
    assert found_in("httpx.get(url, timeout=60)") == []
    assert found_in("httpx.AsyncClient(transport=transport)") == []


def test_an_example_may_take_its_time() -> None:
    assert found_in("@settings(deadline=200)\ndef test(): pass") == [DEADLINE]
    assert found_in("@settings(deadline=None)\ndef test(): pass") == []


def test_a_finding_has_its_line() -> None:
    [one] = findings("began = time.monotonic()\n\nassert time.monotonic() - began < 1\n")
    assert one.line == 3


@pytest.mark.parametrize(
    "code",
    [
        "began = time.time(); f(); assert began <= request.time <= time.time()",
        "told.append(time.monotonic()); assert len(told) >= 3",
        "now = datetime.now(UTC); assert found == now - timedelta(hours=1)",
        "end = int(time.time()); answer = ask(start=end - 900, end=end); assert answer.points > 3",
        "clock = Clock(); clock.sleep(5); assert clock.seconds - 3 < 3",
        "assert pace.wait(0) == 0",
        "assert thread.join() is None and begun.wait(PATIENCE_SECONDS)",
        "assert begun.wait(60)",
        "wait_until(lambda: True, 12, 5, now=clock.now)",
        "while not condition(): time.sleep(0.01)",
        "while not over.wait(0.01): send()",
        "', '.join(words); events.get('name', 3)",
        "play(f)\nasync def f():\n    async with asyncio.timeout(1): await asyncio.sleep(5)",
        "async def f(): await asyncio.sleep(0)\nasyncio.run(f())",
        "pause(5, 'faults are some time apart')",
    ],
)
def test_order_and_clocks_that_are_moved_are_no_durations(code: str) -> None:
    assert found_in(code) == []
