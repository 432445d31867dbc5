"""An engine's process, as the product configures Spark where it is Spark's."""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from bench.engines.broker import end
from millrace.common.errors import OperatorError
from millrace.common.paths import REPO
from millrace.common.waiting import wait_until
from millrace.plan import load_plan
from millrace.setup.spark import local_spark

JAVA = "-Xms1g -XX:+UseG1GC -Xss4m"
HEAP = "2g"
START_SECONDS = 300.0
# The archive's; its jars would have to be on the path of whoever reads only Kafka.
DELTA = {"spark.sql.extensions", "spark.sql.catalog.spark_catalog"}


def spark_settings(folder: Path, own: Mapping[str, str]) -> dict[str, str]:
    """The product's spark-defaults.conf, as far as it is SQL's, on this machine's two cores."""
    defaults = load_plan("local").spark.settings.defaults.model_dump(by_alias=True)
    return {
        key: str(value).lower() if isinstance(value, bool) else str(value)
        for key, value in defaults.items()
        if key.startswith("spark.sql.") and key not in DELTA
    } | {
        "spark.master": "local[2]",
        "spark.ui.enabled": "false",
        "spark.driver.memory": HEAP,
        "spark.driver.extraJavaOptions": JAVA,
        "spark.local.dir": str(folder),
        **own,
    }


@contextmanager
def running(
    python: Path | str, program: Path, asked: Mapping[str, Any], environment: Mapping[str, str]
) -> Iterator["Engine"]:
    """The program with its one argument, JSON; ended with the context."""
    log = Path(asked["folder"]) / "log"
    with (
        log.open("wb") as out,
        subprocess.Popen(
            [str(python), str(program), json.dumps(asked)],
            env=os.environ | environment,
            stdout=out,
            stderr=subprocess.STDOUT,
        ) as process,
    ):
        try:
            yield Engine(process, log)
        finally:
            end(process)


@contextmanager
def running_spark(program: Path, asked: Mapping[str, Any]) -> Iterator["Engine"]:
    with running(sys.executable, program, asked, spark_environment()) as engine:
        yield engine


def job_settings(rendered: Mapping[str, Any], jobs: Sequence[str]) -> dict[str, dict[str, Any]]:
    """What each job finds in its settings on a host: those of all jobs, and its own."""
    return {job: rendered["common"] | rendered[job] for job in jobs}


def spark_environment() -> dict[str, str]:
    path = [str(local_spark()), str(REPO / "spark-jobs"), str(REPO)]
    return {"PYTHONPATH": os.pathsep.join(path)}


@contextmanager
def answering(
    command: Sequence[str], log: Path, environment: Mapping[str, str]
) -> Iterator[Callable[[Any], Any]]:
    """A program that answers each line of JSON with another; ended with the context.

    To ask it raises OperatorError, with the log's end, when it has ended.
    """
    pipe = subprocess.PIPE
    with (
        log.open("wb") as out,
        subprocess.Popen(
            command,
            env=os.environ | environment,
            stdin=pipe,
            stdout=pipe,
            stderr=out,
            text=True,
            bufsize=1,
        ) as process,
    ):
        asked, answered = process.stdin, process.stdout
        assert asked
        assert answered

        def ask(question: Any) -> Any:
            asked.write(json.dumps(question) + "\n")
            if not (answer := answered.readline()):
                raise OperatorError(f"no answer came: …{log.read_text()[-2000:]}")
            return json.loads(answer)

        try:
            yield ask
        finally:
            end(process)


class Engine:
    def __init__(self, process: "subprocess.Popen[bytes]", log: Path) -> None:
        self._process = process
        self._log = log

    def wait_for(self, results: list[Any]) -> None:
        """Until there is one. Raises OperatorError with the log's end when there is none."""
        alive = self._process.poll
        wait_until(lambda: results or alive() is not None, START_SECONDS, 0.2)
        if not results:
            raise OperatorError(f"no result came: …{self._log.read_text()[-2000:]}")
