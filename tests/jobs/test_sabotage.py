"""What drills spoil on purpose still hooks into the jobs: else a control would prove nothing."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.drills.test_unprotected_jobs import SABOTAGE, spoiled


@pytest.mark.parametrize("name", sorted(path.stem for path in SABOTAGE.glob("*.py")))
def test_a_package_that_is_spoiled_can_be_run(name: str, tmp_path: Path) -> None:
    package = spoiled(name, tmp_path)
    started = subprocess.run(
        [sys.executable, "-m", "millrace_jobs.main", "--help"],
        env=os.environ | {"PYTHONPATH": str(package)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert started.returncode == 0, started.stderr
