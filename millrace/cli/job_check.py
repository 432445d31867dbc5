"""Declared jobs, analysed by a Spark on this machine as edge hosts do before a deployment."""

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from millrace.common.errors import NotPassedError, OperatorError
from millrace.common.paths import REPO
from millrace.inventory import deployment
from millrace.plan import Plan
from millrace.setup.jobs_package import build
from millrace.setup.spark import local_spark

LAST_WORDS = 1000


def check_jobs(plan: Plan, jobs: Sequence[str] = ()) -> dict[str, dict[str, Any]]:
    """Returns how each declared job was understood, by its name: see `transformation.Read`.

    NotPassedError with file, line and reason of each declared job that can't be run.

    Args:
        jobs: only these; all of the plan's applications without any.
    """
    spark = local_spark()
    package = build(folders=[REPO / folder for folder in plan.job_folders])["jobs"].path
    path = os.pathsep.join(map(str, (package, spark)))
    with tempfile.TemporaryDirectory(prefix="millrace-") as folder:
        configs = []
        for application in plan.applications:
            configs.append(Path(folder) / f"{application}.json")
            content = deployment(plan, application) | {"version": ""}
            configs[-1].write_text(json.dumps(content))
        done = subprocess.run(
            [
                sys.executable,
                "-m",
                "millrace_jobs.check",
                "--json",
                *configs,
                *(word for job in jobs for word in ("--job", job)),
            ],
            cwd=folder,  # not the checkout, whose sources would come first
            env=os.environ | {"PYTHONPATH": path, "SPARK_HOME": f"{spark}/pyspark"},
            capture_output=True,
            text=True,
        )
    hint = "mend the file, and run the same command again; nothing was deployed"
    try:
        answer = json.loads(done.stdout or '{"problems": [], "read": {}}')
    except ValueError:
        raise NotPassedError(done.stdout.strip(), hint) from None
    if answer["problems"]:
        raise NotPassedError("\n".join(answer["problems"]), hint)
    if done.returncode:
        raise OperatorError(f"Spark failed: {done.stderr.strip()[-LAST_WORDS:]}")
    read: dict[str, dict[str, Any]] = answer["read"]
    return read
