"""A Spark on this machine, out of the very tarball that hosts install."""

import os
import shutil
import tarfile
from pathlib import Path

from millrace.common.errors import OperatorError
from millrace.common.paths import ARTIFACTS, CACHE
from millrace.setup.artifacts import read_manifest

# Pure Python and jars. What else jobs import was built for the hosts' Python; the toolkit has it.
PARTS = ("site-packages/pyspark/", "site-packages/py4j/")
ELSEWHERE = "`millrace deploy` checks on an edge host, before it touches what runs"


def local_spark(cache: Path = CACHE) -> Path:
    """A folder for Python's path; unpacked once for each version. Raises OperatorError without a
    Java."""
    if not (shutil.which("java") or os.environ.get("JAVA_HOME")):
        raise OperatorError(
            "Spark needs a Java, and there is none on this machine",
            f"install one, as by `apt-get install openjdk-17-jre-headless`; or {ELSEWHERE}",
        )
    spark = read_manifest()["spark"]
    home = cache / f"spark-{spark['version']}"
    if not home.exists():
        partial = cache / f".spark-{os.getpid()}"
        with tarfile.open(ARTIFACTS / spark["file"]) as tar:
            members = [member for member in tar if member.name.startswith(PARTS)]
            tar.extractall(partial, members)  # our own; Debian 12's Python knows no filters
        partial.rename(home)
    return home / "site-packages"
