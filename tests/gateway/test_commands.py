"""What deployments and operators ask of a gateway."""

import json
from contextlib import nullcontext
from types import SimpleNamespace
from typing import Any

import pytest
from millrace_gateway import commands
from millrace_gateway.decide import Intent


def test_a_deployment_waits_for_no_disabled_job(settings, deployments, monkeypatch, capsys):
    config = deployments / "insights-v2" / "insights.json"
    config.write_text(json.dumps({"jobs": ["archive", "traffic"]}))
    asked = []

    def progress(_, jobs, version):
        asked.append((jobs, version))
        return nullcontext(SimpleNamespace(missing=lambda: []))

    monkeypatch.setattr(commands, "JobActivity", progress)
    registry = SimpleNamespace(
        is_disabled=lambda job: job == "archive",
        status=lambda application: {"version": "v2", "phase": "running"},
    )
    wanted = SimpleNamespace(application="insights", version="v2", timeout=0)
    commands._wait(registry, settings, wanted)
    assert asked == [(["traffic"], "v2")]
    assert capsys.readouterr().out == "insights: v2 runs without archive, disabled\n"


@pytest.mark.parametrize(("before", "asked"), [(None, True), ("v1", True), ("v2", False)])
def test_what_runs_already_is_not_analysed_again(
    monkeypatch: pytest.MonkeyPatch, before: str | None, asked: bool
) -> None:
    done: list[str] = []
    deployed = SimpleNamespace(check=lambda: None)
    monkeypatch.setattr(commands, "deployment", lambda *_: deployed)
    monkeypatch.setattr(commands.compatibility, "check", lambda *_: None)
    monkeypatch.setattr(commands.declarations, "check", lambda _: done.append("analysed"))
    kept = Intent("running", before) if before else None
    registry: Any = SimpleNamespace(
        intent=lambda _: kept, intend=lambda *_: done.append("intended")
    )
    wanted: Any = SimpleNamespace(application="insights", version="v2", check=False)
    commands._start(registry, SimpleNamespace(deployments=None), wanted)  # type: ignore[arg-type]
    assert done == (["analysed", "intended"] if asked else [])
