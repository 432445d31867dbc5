"""What a job is, as its declaration and the plan say it: without Spark, without a cluster."""

import ast
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from millrace.common.paths import REPO
from millrace.config.jobs import ARCHIVE, ARCHIVES, OURS, declaration_of
from millrace.plan import Plan

PROGRAM = "program"
KINDS = {".py": "Python file", ".sql": "SQL file"}
UNITS = (("d", 86400), ("h", 3600), ("m", 60), ("s", 1))


@dataclass(frozen=True)
class Facts:
    """``windows`` and ``watermark`` are written as ``1h``, and empty without one.

    Windows are a program's: those of a declared job are in its query, which Spark alone can read.
    ``tables`` are those whose facts the rows get; ``audit`` is a command, or empty. A job in real
    time has records of the results topic, and neither rows, nor a route, nor an audit.
    """

    name: str
    summary: str
    kind: str
    file: Path
    streams: list[str]
    tables: list[str]
    windows: tuple[str, ...]
    watermark: str
    outputs: tuple[str, ...]
    routes: tuple[str, ...]
    audit: str
    real_time: bool = False


@dataclass(frozen=True)
class Program:
    """What one of ours makes, which no declaration says. A test holds it to programs and API."""

    name: str
    windows: tuple[str, ...]
    outputs: tuple[str, ...]
    routes: tuple[str, ...]


PROGRAMS = {
    ARCHIVE: Program(
        name=ARCHIVE,
        windows=(),
        outputs=("archive", "dead_letters", "dead_letter_counts", "dead_letter_batches"),
        routes=("/v1/dead-letters",),
    ),
    "traffic": Program(
        name="traffic",
        windows=("1m", "1h"),
        outputs=("traffic", "pages", "page_lists"),
        routes=("/v1/traffic", "/v1/traffic/total", "/v1/pages/top"),
    ),
}


def all_jobs(plan: Plan) -> list[str]:
    """The programs, then whatever is declared, whether an application runs it or not."""
    return [*PROGRAMS, *sorted(plan.spark.settings.model_extra or {})]


def facts_of(plan: Plan, job: str) -> Facts:
    settings = plan.spark.rendered()["settings"]
    own = settings["common"] | settings[job]
    declared = declaration_of(job, [REPO / folder for folder in plan.job_folders])
    if declared is None:
        program = PROGRAMS[ARCHIVE if job.startswith(ARCHIVES) else job]
        file, kind = OURS.with_name("programs") / f"{program.name}.py", PROGRAM
        summary, windows = _said(file), program.windows
        outputs, routes = program.outputs, program.routes
        audit = "" if job.startswith(ARCHIVES) else "millrace audit"
    else:
        file, summary = declared
        kind, windows = KINDS[file.suffix], ()
        outputs, routes, audit = (plan.names.kafka.topics.results,), (), ""
        if plan.spark.settings.keeps_rows(job):
            outputs, routes = (f"job_{own['checkpoint']}",), _routes(job, own)
            audit = f"millrace audit --job {job}"
    return Facts(
        name=job,
        summary=summary,
        kind=kind,
        file=file,
        streams=plan.spark.settings.streams_of(job),
        tables=own.get("tables", []),
        windows=windows,
        watermark=_span(own["watermark_seconds"]) if "watermark_seconds" in own else "",
        outputs=outputs,
        routes=routes,
        audit=audit,
        real_time=plan.spark.settings.is_real_time(job),
    )


def _routes(job: str, own: dict[str, Any]) -> tuple[str, ...]:
    """Rows, and the sessions of those that are slots of them."""
    route = f"/v1/jobs/{job}"
    merged = ("live", "closed", "sessions") if own["session_gap_seconds"] else ()
    return (route, *(f"{route}/{name}" for name in merged))


def _span(seconds: int) -> str:
    """Returns a span in the largest unit that divides it: ``30m``."""
    unit, size = next((unit, size) for unit, size in UNITS if seconds % size == 0)
    return f"{seconds // size}{unit}"


def _said(file: Path) -> str:
    """Returns what the program says of itself, behind its name."""
    said = ast.get_docstring(ast.parse(file.read_text())) or ""
    return said.partition("\n\n")[0].replace("\n", " ").removeprefix(f"{file.stem}: ")
