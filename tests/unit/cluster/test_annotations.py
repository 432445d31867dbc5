"""What a drill leaves for the exporter, in a file that is never half there."""

import stat
import subprocess
from pathlib import Path
from typing import Any

import pytest
from prometheus_client.parser import text_string_to_metric_families

from millrace.cluster import annotations
from millrace.cluster.annotations import DRILL, drill_text, writing
from millrace.common.errors import OperatorError
from millrace.plan import load_plan


def test_a_drill_is_told_as_prometheus_reads_it() -> None:
    (family,) = text_string_to_metric_families(drill_text("driver-killed", 1_795_252_545.9))
    (sample,) = family.samples
    assert (sample.name, sample.labels) == (DRILL, {"name": "driver-killed"})
    assert sample.value == 1_795_252_546


def test_when_a_drill_last_began_is_what_any_prometheus_saw_last(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    plan = load_plan("local")
    answers: list[dict[str, Any]] = [
        {"metric": {"name": "random"}, "values": [[10, "5"], [20, "5"]]},
        {"metric": {"name": "zone-lost"}, "values": [[15, "9"]]},
    ]
    monkeypatch.setattr(annotations.prometheus, "query", lambda plan, expression: answers)
    assert annotations.last_drill(plan) == 9
    answers.clear()
    assert annotations.last_drill(plan) is None


def test_without_a_prometheus_no_drill_is_known(monkeypatch: pytest.MonkeyPatch) -> None:
    def nobody(plan: object, expression: str) -> None:
        raise OperatorError("no Prometheus answers", "look")

    monkeypatch.setattr(annotations.prometheus, "query", nobody)
    assert annotations.last_drill(load_plan("local")) is None


def test_a_file_is_written_whole_and_for_everybody(tmp_path: Path) -> None:
    path = tmp_path / "drill.prom"
    for text in ("one\n", "two\n"):
        command = writing(str(path)).removeprefix("sudo ")
        subprocess.run(["sh", "-c", f"umask 077; {command}"], input=text, text=True, check=True)
        assert path.read_text() == text
    assert stat.S_IMODE(path.stat().st_mode) == 0o644
    assert [one.name for one in tmp_path.iterdir()] == [path.name]
