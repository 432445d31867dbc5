"""The gateway's own command, on a stand-in for an edge host."""

from subprocess import CompletedProcess
from typing import Any

import pytest

from millrace.cluster import job_gateway
from millrace.plan import load_plan


def test_a_question_is_handed_to_a_host_as_it_is(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[Any, str]] = []

    def run_on(_plan: Any, _host: Any, command: list[str], stdin: str, **_: Any) -> Any:
        asked.append((command, stdin))
        return CompletedProcess(command, 0, 'a line of a log\n{"count": 1}\n', "")

    monkeypatch.setattr(job_gateway, "run_on", run_on)
    gateway = job_gateway.Gateway(load_plan("local"))
    assert gateway.why("sessions", {"key": {"url": "$HOME"}}) == {"count": 1}
    assert gateway.reconcile("traffic", {"without": "url = '/$a b'"}, "v1") == {"count": 1}
    gateway_s = ["sudo", "job-gateway"]
    assert asked == [
        ([*gateway_s, "why", "sessions"], '{"key": {"url": "$HOME"}}'),
        ([*gateway_s, "reconcile", "traffic", "--version", "v1"], '{"without": "url = \'/$a b\'"}'),
    ]
