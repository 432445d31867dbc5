"""Disks stay flat: real batches, files and log, upkeep as it is, and a clock that runs ahead."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from millrace.common.paths import REPO
from millrace.plan.make import load_plan

pytestmark = pytest.mark.extended

Days = list[dict[str, int]]
TABLE = "spark.databricks.delta.properties.defaults"
DAYS = 72
KINDS = ("data_files", "log_files", "applications", "kibibytes")


@pytest.fixture(scope="session")
def faketime() -> Path:
    """libfaketime of Debian's, installed if need be."""
    where = "/usr/lib"
    pattern = "*/faketime/libfaketime.so.1"
    if not [*Path(where).glob(pattern)]:
        sudo = ["sudo"] if os.geteuid() else []
        subprocess.run([*sudo, "apt-get", "install", "-y", "-qq", "libfaketime"], check=True)
    return next(Path(where).glob(pattern))


@pytest.fixture
def days(faketime: Path, spark_settings: dict[str, str], tmp_path: Path) -> Days:
    """What is on the disk, day by day."""
    plan = load_plan("local")
    defaults = plan.spark.settings.defaults.model_extra or {}
    settings: dict[str, Any] = {
        "days": DAYS,
        "faketime": str(faketime),
        "keep_days": plan.spark.settings.archive.keep_days,
        "left_days": plan.services["job_gateway"].settings["upkeep"]["left_days"],
        "spark": {
            **spark_settings,
            "spark.ui.showConsoleProgress": "false",
            "spark.network.timeout": "3650d",  # a clock that jumps isn't an executor's silence
            **{name: value for name, value in defaults.items() if name.startswith(TABLE)},
            # Commits are few here; of real ones a day has thousands.
            f"{TABLE}.checkpointInterval": "3",
        },
    }
    folder = tmp_path / "disk"
    folder.mkdir()
    environment = {"TZ": "UTC", "PYTHONPATH": os.pathsep.join(sys.path)}
    done = subprocess.run(
        [sys.executable, "-m", "tests.jobs.month", str(folder), json.dumps(settings)],
        cwd=REPO,
        env=os.environ | environment,
        stdout=subprocess.PIPE,
        text=True,
        check=True,
    )
    return [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]


def test_disks_stay_flat_over_a_month(days: Days) -> None:
    """All that is kept is there after 37 days: 30, and 7 for what was replaced or has expired."""
    full = [day for day in days if day["day"] > 40]
    early, late = full[: len(full) // 2], full[len(full) // 2 :]
    assert late[-1]["day"] - early[0]["day"] >= 30
    for kind in KINDS:
        assert max(day[kind] for day in late) <= max(day[kind] for day in early), (kind, days)
    assert late[-1]["applications"] <= 4
