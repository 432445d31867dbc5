"""Which program a job is, and how much it takes at once."""

import ast
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import millrace_jobs
import pytest
from millrace_jobs.declared.job import Declared
from millrace_jobs.kinds import ARCHIVE, DECLARED, PROGRAMS, REAL_TIME, TRAFFIC, kind_of
from millrace_jobs.query.context import JobContext

from millrace.plan import load_plan
from tests.jobs.samples import settings_of

KINDS = (ARCHIVE, TRAFFIC, DECLARED, REAL_TIME)
CLASSES = {kind.program.partition(":")[2] for kind in KINDS}


def test_a_further_stream_is_archived_by_the_same_program() -> None:
    jobs = ("archive", "archive_clicks", "traffic")
    programs = [kind_of(job).load().__name__ for job in jobs]
    assert programs == ["Archive", "Archive", "Traffic"]
    assert kind_of("attribution").load() is Declared


def kinds_asked_for(path: Path) -> Iterator[str]:
    """Where a module tells jobs apart by their class or their name, rather than ask the job."""
    for node in ast.walk(ast.parse(path.read_text())):
        where = f"{path.name}:{getattr(node, 'lineno', 0)}"
        match node:
            case ast.Call(func=ast.Name("isinstance" | "issubclass"), args=[_, kinds]):
                named = {one.id for one in ast.walk(kinds) if isinstance(one, ast.Name)}
                yield from (f"{where}: {name}" for name in named & CLASSES)
            case ast.Compare():
                texts = {one.value for one in ast.walk(node) if isinstance(one, ast.Constant)}
                yield from (f"{where}: {text!r}" for text in texts & {*PROGRAMS, "real-time"})
            case ast.MatchClass(cls=ast.Name(name)) if name in CLASSES:
                yield f"{where}: {name}"


def test_what_a_job_is_is_asked_for_in_one_place() -> None:
    folder = Path(millrace_jobs.__file__).parent
    found = {
        path.name: list(kinds_asked_for(path))
        for path in folder.rglob("*.py")
        if path.name != "kinds.py"
    }
    assert {name: where for name, where in found.items() if where} == {}


@pytest.mark.parametrize(
    "text",
    [
        "isinstance(job, Declared | RealTime)",
        "isinstance(job, (Traffic, str))",
        'name != "traffic"',
        'settings.get("trigger") == "real-time"',
        "match job:\n    case Archive(): pass",
    ],
)
def test_that_is_found_wherever_else_it_is_asked_for(tmp_path: Path, text: str) -> None:
    (tmp_path / "module.py").write_text(text)
    assert [*kinds_asked_for(tmp_path / "module.py")]


def test_a_job_that_may_take_little_starts_with_no_more() -> None:
    own = settings_of("traffic", max_events_per_second=100)
    config: Any = SimpleNamespace(settings={"traffic": own})
    context = JobContext("traffic", config, *[None] * 4)  # type: ignore[arg-type]
    assert context.least_offsets == context.max_offsets == 100


def test_no_job_takes_more_than_the_archive_in_the_same_time() -> None:
    plan = load_plan("local")
    rates = {}
    for job in plan.jobs:
        own = settings_of(job)
        config: Any = SimpleNamespace(settings={job: own})
        context = JobContext(job, config, *[None] * 4)  # type: ignore[arg-type]
        rates[job] = context.max_offsets / max(own.trigger_seconds, 1)
        assert context.max_offsets == plan.spark.settings.batch_records(job)  # as operators see it
        assert 0 < context.least_offsets < context.max_offsets
    assert len(rates) > 1
    assert rates["archive"] == rates["traffic"] == max(rates.values())
