"""The controls' sabotage takes the place of what the jobs call: as it is today."""

import runpy
from inspect import Parameter, signature
from pathlib import Path
from typing import Any

import pytest
from millrace_jobs.leadership.lease import Lease
from millrace_jobs.programs.archive import Archive
from millrace_jobs.programs.traffic import Traffic
from millrace_jobs.sinks.cassandra import Tables
from millrace_jobs.sinks.results import Results

SABOTAGE = Path(__file__).parents[1] / "drills" / "sabotage"
SPOILED = (Archive, Lease, Traffic, Tables, Results)


@pytest.fixture
def originals(monkeypatch: pytest.MonkeyPatch) -> dict[tuple[type, str], Any]:
    """Given back after the test."""
    found = {
        (kind, name): value
        for kind in SPOILED
        for name, value in vars(kind).items()
        if callable(value)
    }
    for (kind, name), value in found.items():
        monkeypatch.setattr(kind, name, value)
    monkeypatch.setattr(Lease, "is_lost", vars(Lease)["is_lost"])
    return found


@pytest.mark.parametrize("path", sorted(SABOTAGE.glob("*.py")), ids=lambda path: path.stem)
def test_it_can_be_called_as_the_jobs_do(
    path: Path, originals: dict[tuple[type, str], Any]
) -> None:
    runpy.run_path(str(path))
    replaced = {key: new for key, old in originals.items() if (new := getattr(*key)) is not old}
    assert replaced
    for key, new in replaced.items():
        asked = signature(originals[key]).parameters.values()
        plain = [p.name for p in asked if p.default is Parameter.empty]
        named = {p.name: p.default for p in asked if p.default is not Parameter.empty}
        signature(new).bind(*plain, **named)
