"""The guard ends a session when, and only when, its driver is gone."""

import signal
import subprocess
import sys
from collections.abc import Iterator
from io import StringIO
from types import SimpleNamespace
from typing import Any

import pytest
from kazoo.handlers.threading import KazooTimeoutError
from millrace_jobs.leadership import watchdog
from millrace_jobs.leadership.watchdog import Watchdog

from tests.waiting import PATIENCE_SECONDS

PASSWORD = bytes(range(16))


@pytest.fixture
def jvm() -> Iterator[subprocess.Popen[bytes]]:
    with subprocess.Popen(["sleep", "3600"]) as process:
        yield process
        process.kill()


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What the guard does with ZooKeeper, which can't be reached."""
    calls: list[Any] = []

    def start(_: float) -> None:
        raise KazooTimeoutError

    def client(hosts: str, timeout: float, client_id: tuple[int, bytes]) -> SimpleNamespace:
        calls.append((hosts, timeout, client_id))
        return SimpleNamespace(start=start, stop=lambda: calls.append("stop"))

    monkeypatch.setattr(watchdog, "KazooClient", client)
    monkeypatch.setattr(watchdog.signal, "signal", lambda *_: None)
    return calls


def test_the_last_session_is_ended_after_the_other_half(
    calls: list[Any], jvm: subprocess.Popen[bytes]
) -> None:
    watchdog.main("zookeeper", 2.5, jvm.pid, StringIO(f"7 00\n8 {PASSWORD.hex()}\n"))
    assert calls == [("zookeeper", 2.5, (8, PASSWORD)), "stop"]
    assert jvm.wait(PATIENCE_SECONDS) == -signal.SIGKILL


def test_without_a_session_there_is_nothing_to_end(
    calls: list[Any], jvm: subprocess.Popen[bytes]
) -> None:
    watchdog.main("zookeeper", 2.5, jvm.pid, StringIO(""))
    assert calls == []


def test_the_other_half_may_have_died_before(
    calls: list[Any], jvm: subprocess.Popen[bytes]
) -> None:
    def lines() -> Iterator[str]:
        jvm.kill()
        jvm.wait()
        yield f"8 {PASSWORD.hex()}\n"

    watchdog.main("zookeeper", 2.5, jvm.pid, lines())
    assert calls == [("zookeeper", 2.5, (8, PASSWORD)), "stop"]


def test_a_driver_tells_its_session_through_a_pipe(monkeypatch: pytest.MonkeyPatch) -> None:
    echo = [sys.executable, "-c", "import sys; print(sys.stdin.readline(), end='')"]
    popen = subprocess.Popen
    monkeypatch.setattr(
        watchdog.subprocess, "Popen", lambda _, **how: popen(echo, stdout=subprocess.PIPE, **how)
    )
    watched = Watchdog("zookeeper", 2.5, 1)
    watched.protect((7, PASSWORD))
    assert watched._process.communicate() == (f"7 {PASSWORD.hex()}\n", None)


def test_a_driver_lives_on_without_its_guard() -> None:
    watched = Watchdog("zookeeper", 2.5, 1)
    watched.dismiss()
    watched.protect((7, PASSWORD))
