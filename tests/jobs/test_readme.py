"""The job that the README shows, as its readers paste it."""

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
from millrace_jobs.kinds import read_settings
from pyspark.sql import SparkSession

from millrace.common.paths import REPO
from millrace.plan import load_plan
from tests.jobs.running import output_of
from tests.jobs.samples import STREAM

PASTED = re.compile(r"```sh\n(mkdir \.\./my-jobs.*?)MILLRACE_TRIAL", re.DOTALL)


def test_the_readmes_job_is_one(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    checkout = tmp_path / "checkout"
    checkout.mkdir()
    (shell,) = PASTED.findall((REPO / "README.md").read_text())
    subprocess.run(["bash", "-ec", shell], cwd=checkout, check=True)

    monkeypatch.setenv("MILLRACE_TRIAL", str(tmp_path / "my-jobs"))
    deployed = load_plan("local").spark.rendered()["settings"]
    settings: Any = read_settings("errors_by_page", deployed["common"] | deployed["errors_by_page"])
    query = (tmp_path / "my-jobs" / "errors_by_page.sql").read_text()
    output = output_of(spark, query, [STREAM], settings)
    assert [*output.key] == ["url"]
    assert output.window_seconds == 60
