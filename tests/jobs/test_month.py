"""Seven weeks of an archive with the settings of `local`: what it takes on the disk stays flat.

The clock is moved, and not the settings shortened: Delta's log is cut by whole days. What is on the
disk are 30 days of events, what was merged or has expired within 7 more, and the log of 7.
"""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from millrace.common.paths import REPO
from millrace.plan import load_plan

pytestmark = pytest.mark.month

DAYS = 52
CLOCK = Path("/usr/lib/x86_64-linux-gnu/faketime/libfaketimeMT.so.1")  # Debian's faketime
DELTA = "spark.databricks.delta."


def test_disks_stay_flat(connectors: list[Path], tmp_path: Path) -> None:
    assert CLOCK.exists(), "apt-get install faketime"
    spark = load_plan("local").spark.rendered()["settings"]
    delta = {k: v for k, v in spark["spark-defaults.conf"].items() if k.startswith(DELTA)}
    assert f"{DELTA}properties.defaults.deletedFileRetentionDuration" in delta
    keep_days = spark["archive"]["keep_days"]
    settings = delta | {
        "spark.jars": ",".join(map(str, connectors)),
        "spark.ui.enabled": "false",
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xss4m",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "1",
        "spark.sql.extensions": spark["spark-defaults.conf"]["spark.sql.extensions"],
        "spark.sql.catalog.spark_catalog": spark["spark-defaults.conf"][
            "spark.sql.catalog.spark_catalog"
        ],
    }
    (tmp_path / "clock").write_text("+0d\n")
    environment = {
        "PYTHONPATH": os.pathsep.join([str(REPO / "spark-jobs"), str(REPO)]),
        "LD_PRELOAD": str(CLOCK),
        "FAKETIME_TIMESTAMP_FILE": str(tmp_path / "clock"),
        "FAKETIME_NO_CACHE": "1",
        "FAKETIME_DONT_FAKE_MONOTONIC": "1",
        "NO_FAKE_STAT": "1",
        "TZ": "UTC",
    }
    done = subprocess.run(
        [sys.executable, Path(__file__).with_name("month.py"), tmp_path / "events"],
        env=os.environ | environment,
        input=json.dumps({"settings": settings, "days": DAYS, "keep_days": keep_days}) + "\n",
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stderr[-5000:]
    days = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert [day["day"] for day in days] == list(range(DAYS))
    # From then on each day's end is like the one before: 30 days, 7 more, and a log of 7.
    full = days[keep_days + 7 + 3 :]
    assert len(full) > 10
    for what in ("bytes", "files", "rows"):
        counts = [day[what] for day in full]
        assert max(counts) <= 1.1 * min(counts), (what, counts)
    grown = [day["rows"] for day in days[:keep_days]]
    assert grown == sorted(grown)
    assert full[-1]["rows"] <= 1.1 * grown[-1]
