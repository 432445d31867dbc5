"""The bench's own Spark programs take the jobs as they are now, and find what is right."""

from argparse import Namespace
from pathlib import Path

import pytest

from bench.transforms import records
from bench.transforms.__main__ import COMPARISONS, measure

EVENTS = 500


@pytest.mark.extended
def test_every_step_of_the_jobs_transforms_is_measured_and_formats_agree(tmp_path: Path) -> None:
    records.write(tmp_path, EVENTS)
    found = measure(tmp_path, Namespace(by="formats", events=EVENTS, repetitions=1, warm_up=0))
    assert found["correct"]
    steps = {run["step"] for run in found["runs"]}
    assert steps == {"read", "parse", "classify", "traffic", "sessions", "archive"}
    assert len(found["runs"]) == len(steps) * len(COMPARISONS["formats"])
    assert all(run["core_us_per_event"] > 0 for run in found["runs"])
