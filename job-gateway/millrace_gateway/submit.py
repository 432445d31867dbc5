"""spark-submit, as a child process that is looked at and never waited for."""

import contextlib
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
import zipfile
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ARCHIVE = "archive"  # the job of this name, and any whose name begins with it and an underscore
MAIN = "millrace_jobs/main.py"


class NotDeployed(Exception):
    """This host lacks the files of a version."""


@dataclass(frozen=True)
class Archive:
    """The table of a stream's events, which one job of a version writes; ``folder`` is its path."""

    job: str
    stream: str
    topic: str
    folder: str

    @property
    def log(self) -> str:
        """Where Delta keeps the table's commits."""
        return f"{self.folder}/_delta_log"


@dataclass(frozen=True)
class Deployment:
    """One version of one application: a folder that is written once."""

    application: str
    version: str
    folder: Path

    @property
    def package(self) -> Path:
        return self.folder / "millrace_jobs.zip"

    @property
    def config(self) -> Path:
        return self.folder / f"{self.application}.json"

    def check(self) -> None:
        for path in (self.package, self.config):
            if not path.exists():
                raise NotDeployed(f"{path} is missing on this host; run playbook deploy-jobs.yml")

    def lag_seconds(self) -> dict[str, int]:
        """Its jobs, and how long records may wait for each; none where the files are missing."""
        content = self._content()
        return {job: content["settings"][job]["lag_seconds"] for job in content.get("jobs", ())}

    def archives(self) -> Iterator[Archive]:
        """The tables that its jobs write; none where the files are missing."""
        content = self._content()
        for job in content.get("jobs", ()):
            if job == ARCHIVE or job.startswith(f"{ARCHIVE}_"):
                common = content["settings"]["common"]
                stream = content["settings"][job].get("stream", common["stream"])
                topic = content["streams"][stream]["topic"]
                yield Archive(job, stream, topic, f"{common['archives']}/{stream}")

    def _content(self) -> dict[str, Any]:
        content: dict[str, Any] = (
            json.loads(self.config.read_text()) if self.config.exists() else {}
        )
        return content

    def has(self, module: str) -> bool:
        """Whether the version brings it; an older one may not."""
        with zipfile.ZipFile(self.package) as package:
            return f"{module.replace('.', '/')}.py" in package.namelist()

    def ask(self, module: str, seconds: float) -> subprocess.CompletedProcess[str]:
        """What the version's own code says of its configuration, in a process of its own.

        It comes first on Python's path; Spark and the other packages are where they are for us.
        """
        path = [str(self.package), *filter(None, [os.environ.get("PYTHONPATH")])]
        with tempfile.TemporaryDirectory(prefix="ask-") as folder:
            return subprocess.run(
                [sys.executable, "-m", module, str(self.config)],
                cwd=folder,  # not where our own sources may be
                env=os.environ | {"PYTHONPATH": os.pathsep.join(path)},
                capture_output=True,
                text=True,
                timeout=seconds,
            )


def deployment(root: Path, application: str, version: str) -> Deployment:
    return Deployment(application, version, root / f"{application}-{version}")


def command(spark_submit: Path, deployment: Deployment, main: Path) -> list[str]:
    """Everything else that Spark needs to know stands in spark-defaults.conf."""
    tags = f"millrace:{deployment.application},version:{deployment.version}"
    # spark-submit leaves once YARN has accepted the application, and YARN keeps it from there on.
    settings = {"spark.yarn.tags": tags, "spark.yarn.submit.waitAppCompletion": "false"}
    return [
        str(spark_submit),
        *("--master", "yarn", "--deploy-mode", "cluster", "--name", deployment.application),
        *(word for key, value in settings.items() for word in ("--conf", f"{key}={value}")),
        *("--py-files", str(deployment.package), "--files", str(deployment.config)),
        *(str(main), "--config", deployment.config.name),
    ]


def first_error(log: Path) -> str:
    """Why a Java or Python program failed, by its output, and where the rest of that is."""
    lines = log.read_text(errors="replace").splitlines()
    told = [line for line in lines if "Exception" in line or "Error" in line] or lines[-1:]
    return f"{told[0].strip()[:300] if told else 'no output'} ({log})"


class Child:
    """One spark-submit on its way.

    Args:
        log: where its output goes; the last run's only.
        timeout: seconds after which it is killed.
    """

    def __init__(self, spark_submit: Path, what: Deployment, log: Path, timeout: float) -> None:
        what.check()
        self.version = what.version
        self._folder = tempfile.TemporaryDirectory(prefix="submit-")
        self._log = log
        self._timeout = timeout
        self._deadline = time.monotonic() + timeout
        with zipfile.ZipFile(what.package) as package:
            main = Path(package.extract(MAIN, self._folder.name))
        with log.open("wb") as output:
            self._process = subprocess.Popen(
                command(spark_submit, what, main),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                start_new_session=True,  # a group of its own: its launcher script dies with it
            )

    def ended(self) -> bool:
        if self._process.poll() is None and time.monotonic() < self._deadline:
            return False
        self.kill()
        return True

    def error(self) -> str:
        """Why it failed, in one line; empty when it has not. Only once it has ended."""
        if self._process.returncode == 0:
            return ""
        if self._process.returncode < 0:
            return (
                f"spark-submit was killed, at the latest after {self._timeout:.0f} s ({self._log})"
            )
        return first_error(self._log)

    def kill(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self._process.pid, signal.SIGKILL)
        self._process.wait()
        self._folder.cleanup()
