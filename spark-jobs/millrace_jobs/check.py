"""Analyses declared jobs before they are deployed. No query is started, and no cluster is asked.

`PYTHONPATH=millrace_jobs.zip python -m millrace_jobs.check insights.json` where Spark is installed;
the file is an application's configuration. A line on stdout for each job that can't be run, with
the place in its file; exit 1 if there is one. With ``--json`` one object: the same lines as
``problems``, and what was ``read`` of each other job.
"""

import argparse
import json
import re
import sys
import traceback
from pathlib import Path
from string import Template
from typing import Any

from py4j.protocol import Py4JJavaError
from pyspark.sql import DataFrame, SparkSession

from millrace_jobs import config, spark_internals
from millrace_jobs.config import Config
from millrace_jobs.declared import loader
from millrace_jobs.declared.loader import InvalidJob
from millrace_jobs.declared.transformation import Read, Transformation
from millrace_jobs.kinds import kind_of
from millrace_jobs.query.context import AnalysisContext
from millrace_shared.strict import Misconfigured

# Lives for seconds, beside the services of a small host.
SPARK = {
    "spark.ui.enabled": "false",
    "spark.driver.memory": "512m",  # Spark starts with no less; it takes a part of it
    "spark.driver.extraJavaOptions": "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xss4m",
}
# As Spark's messages of both kinds, of syntax and of names, say it.
PLACE = re.compile(r"line (\d+),? pos (\d+)")
REST = re.compile(r"\s*SQLSTATE:.*")  # for machines


def main() -> None:
    parser = argparse.ArgumentParser(description="Analyse declared jobs.")
    parser.add_argument("configs", type=Path, nargs="+", help="of applications")
    parser.add_argument("--job", action="append", help="only this one; may be repeated")
    parser.add_argument("--json", action="store_true", help="also what the jobs were understood as")
    arguments = parser.parse_args()
    try:
        contents = [config.load(path) for path in arguments.configs]
    except Misconfigured as error:
        print(error)
        sys.exit(1)
    jobs = [
        (job, content)
        for content in contents
        for job in content.jobs
        if kind_of(job, content.settings[job].trigger).analysed
        and (arguments.job is None or job in arguments.job)
    ]
    if jobs:
        try:
            spark = SparkSession.builder.master("local[1]").config(map={**SPARK}).getOrCreate()
        except Py4JJavaError as error:
            sys.exit(f"Spark doesn't start: {error.java_exception.toString()}")
        spark.sparkContext.setLogLevel("OFF")
        found = {job: check(spark, job, content) for job, content in jobs}
        problems = [one for one in found.values() if isinstance(one, str)]
        if arguments.json:
            read = {job: one for job, one in found.items() if not isinstance(one, str)}
            print(json.dumps({"problems": problems, "read": read}))
        else:
            print(*problems, sep="\n", end="\n" if problems else "")
        sys.exit(bool(problems))


def check(spark: SparkSession, job: str, content: Config) -> str | Read:
    """What is wrong with a job, ``FILE:LINE:COLUMN: why``, as far as the place is known; or what
    was read of one that can be run."""
    context = AnalysisContext(job, content, spark.newSession())
    settings = context.settings
    try:
        declared: Transformation = kind_of(job, settings.trigger).load_analysed()(context)
        read = declared.analyse()
        refuse_unsupported(declared.frame())
    except Exception as error:
        return f"{place_of(job, error, settings.given)}: {reason_of(job, error)}"
    return read


def refuse_unsupported(frame: DataFrame) -> None:
    """Raises what Spark would when the query starts, of what streams can't do."""
    catalyst = spark_internals.jvm(frame.sparkSession.sparkContext).org.apache.spark.sql.catalyst
    update = getattr(getattr(catalyst.streaming, "InternalOutputModes$Update$"), "MODULE$")
    plan = spark_internals.analysed_plan(frame)
    catalyst.analysis.UnsupportedOperationChecker.checkForStreaming(plan, update)


def reason_of(job: str, error: Exception) -> str:
    """On one line; what Spark says after its first one is the plan."""
    if isinstance(error, InvalidJob):
        return str(error).removeprefix(f"job {job}: ")
    if isinstance(error, SyntaxError):
        return error.msg
    first, *_ = str(error).strip().splitlines() or [""]
    said = REST.sub("", PLACE.split(first)[0]).rstrip(" (;")
    return said if said.startswith("[") else f"{type(error).__name__}: {said}"


def place_of(job: str, error: Exception, settings: dict[str, Any]) -> str:
    """``FILE``, ``FILE:LINE`` or ``FILE:LINE:COLUMN``; both from 1."""
    text = loader.sql(job)
    if text is None:
        line = _line_of(f"{job}.py", error)
        if isinstance(error, InvalidJob) and error.place and error.place.file == f"{job}.py":
            line = error.place.line
        return f"{job}.py:{line}" if line else f"{job}.py"
    if isinstance(error, InvalidJob):
        line, column = (error.place.line, error.place.column) if error.place else (None, None)
    else:
        found = PLACE.search(str(error))
        line, column = (int(found[1]), int(found[2])) if found else (None, None)
    if line is None or column is None:
        return f"{job}.sql"
    written = text.splitlines()[line - 1]
    return f"{job}.sql:{line}:{written_column(written, settings, column) + 1}"


def written_column(line: str, settings: dict[str, Any], column: int) -> int:
    """Where in a line stands what was at ``column`` once its settings were filled in."""
    longer = 0
    for name in Template.pattern.finditer(line):
        begin = name.start() + longer
        if column < begin:
            break
        filled = Template(name[0]).substitute(settings)
        if column < begin + len(filled):
            return name.start()
        longer += len(filled) - len(name[0])
    return column - longer


def _line_of(name: str, error: Exception) -> int | None:
    """Where the file raised it, or called what did."""
    if isinstance(error, SyntaxError) and Path(error.filename or "").name == name:
        return error.lineno
    lines = [
        frame.lineno
        for frame in traceback.extract_tb(error.__traceback__)
        if Path(frame.filename).name == name
    ]
    return lines[-1] if lines else None


if __name__ == "__main__":
    main()
