"""How each engine is started with a workload: its command, settings and classes."""

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any
from zipfile import ZipFile

import numpy as np

from bench.engine import spark_settings
from bench.engines.broker import Broker
from bench.engines.jars import FLINK_CONNECTOR, jars, redis_client
from bench.engines.workload import Workload
from millrace.common.errors import OperatorError
from millrace.common.paths import REPO
from millrace.setup.locks import parse_jar
from millrace.setup.spark import local_spark

HERE = Path(__file__).parent
FLINK = REPO / ".venv" / "flink"
TABLE = "ads"


@dataclass
class Bench:
    """What each engine gets: ``work`` is a folder for classes and data that all may read.

    ``redis`` is the port of a server that has the workload's table, or None.
    """

    broker: Broker
    config: dict[str, Any]
    events: int
    work: Path
    workload: Workload
    redis: int | None = None

    @cached_property
    def expected(self) -> np.ndarray:
        return self.workload.expected(self.events)

    def settings(self, engine: str) -> dict[str, str]:
        return dict(self.config["engines"][engine]["settings"])

    @property
    def producer(self) -> dict[str, str]:
        """Of results."""
        return {key: str(value) for key, value in self.config["producer"].items()}

    @property
    def consumer(self) -> dict[str, str]:
        """Of events."""
        return {key: str(value) for key, value in self.config["consumer"].items()}

    @property
    def topic(self) -> str:
        return self.workload.stream.topic

    @property
    def table(self) -> Path:
        """What events are joined with, if anything."""
        return self.work / "table.csv"


@dataclass(frozen=True)
class Start:
    """A command with its environment."""

    command: list[str]
    environment: dict[str, str]


def spark(bench: Bench, run: str, folder: Path) -> Start:
    java = bench.config["java"].replace("-Xmx2g ", "") + " -Xss4m"
    own = bench.settings("spark") | {"spark.driver.extraJavaOptions": java}
    given = spark_settings(folder, own)
    own_jars = sorted((local_spark() / "pyspark/jars").glob("*.jar"))
    client = redis_client()
    sources = ["Transactions", "Campaigns", "SparkCampaign"]
    path = [compiled(bench, sources, [*own_jars, *client]), *client]
    given["spark.driver.extraClassPath"] = os.pathsep.join(map(str, path))
    asked = common(bench, run, folder) | {"settings": given}
    asked |= bench.config["workloads"][bench.workload.name]["spark"]
    modules = [str(local_spark()), str(REPO / "spark-jobs"), str(REPO)]
    return Start(
        [sys.executable, str(HERE / "spark_run.py"), json.dumps(asked)],
        {"PYTHONPATH": os.pathsep.join(modules)},
    )


def flink(bench: Bench, run: str, folder: Path) -> Start:
    python = FLINK / "bin" / "python"
    if not python.exists():
        raise OperatorError(f"{python} isn't there", "`make bench WHAT=engines` installs it")
    connector = jars() / parse_jar(FLINK_CONNECTOR).filename
    asked = common(bench, run, folder) | {
        "settings": bench.settings("flink"),
        "run": run,
        "statements": str(HERE / "sql" / f"{bench.workload.program}.sql"),
        "function": "CampaignOf" if bench.redis is None else "bench.FlinkCampaign",
        "jars": list(map(str, [connector, flink_functions(bench), *redis_client()])),
    }
    java = {"JVM_ARGS": bench.config["java"], "PYTHONPATH": ""}
    return Start([str(python), str(HERE / "flink_run.py"), json.dumps(asked)], java)


def streams(bench: Bench, run: str, folder: Path) -> Start:
    connector = parse_jar(FLINK_CONNECTOR).filename
    path = [jar for jar in jars().glob("*.jar") if jar.name != connector]
    path += [bench.broker.home / "share", *(bench.broker.home / "lib").glob("log4j-*.jar")]
    name = bench.workload.program
    if name == "ysb":
        sources = ["Ysb", "Campaigns", "StreamsCampaign"]
        given = ["table", TABLE] if bench.redis is None else ["redis", str(bench.redis)]
    else:
        sources, given = ["Nexmark"], [name]
    classes = compiled(bench, sources, path)
    properties = bench.settings("streams") | {
        "application.id": run,
        "bootstrap.servers": bench.broker.address,
        "commit.interval.ms": str(bench.config["commit_ms"]),
        "consumer.auto.offset.reset": "earliest",
        "state.dir": str(folder / "state"),
        "replication.factor": "1",
    }
    properties |= {f"producer.{key}": value for key, value in bench.producer.items()}
    properties |= {f"consumer.{key}": value for key, value in bench.consumer.items()}
    file = folder / "streams.properties"
    file.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
    java = ["java", *bench.config["java"].split(), "-cp"]
    java.append(os.pathsep.join(map(str, [classes, *path])))
    return Start([*java, sources[0], str(file), bench.topic, run, *given], {})


def common(bench: Bench, run: str, folder: Path) -> dict[str, Any]:
    return {
        "brokers": bench.broker.address,
        "workload": bench.workload.program,
        "events": bench.topic,
        "ads": str(bench.table),
        "redis": bench.redis,
        "results": run,
        "producer": bench.producer,
        "consumer": bench.consumer,
        "folder": str(folder),
        "trigger_ms": bench.config["commit_ms"],
    }


def flink_functions(bench: Bench) -> Path:
    [library] = FLINK.glob("lib/python*/site-packages/pyflink/lib")
    path = [*sorted(library.glob("*.jar")), *redis_client()]
    classes = compiled(bench, ["CampaignOf", "Campaigns", "FlinkCampaign"], path)
    jar = bench.work / "functions.jar"
    with ZipFile(jar, "w") as content:
        for file in classes.rglob("*.class"):
            content.write(file, file.relative_to(classes))
    return jar


def compiled(bench: Bench, sources: list[str], path: list[Path]) -> Path:
    """The folder of their classes, named after the first."""
    classes = bench.work / sources[0]
    if not classes.exists():
        command = ["javac", "--release", "17", "-d", str(classes)]
        command += ["-cp", os.pathsep.join(map(str, path))]
        subprocess.run(
            [*command, *(HERE / "java" / f"{each}.java" for each in sources)], check=True
        )
    return classes


ENGINES: dict[str, Callable[[Bench, str, Path], Start]] = {
    "spark": spark,
    "flink": flink,
    "streams": streams,
}
