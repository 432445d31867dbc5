"""Which program a job is, and how much it takes at once."""

from types import SimpleNamespace
from typing import Any

from millrace_jobs.context import JobContext
from millrace_jobs.declared import Declared
from millrace_jobs.ready import program

from millrace.plan import load_plan


def test_a_further_stream_is_archived_by_the_same_program() -> None:
    jobs = ("archive", "archive_clicks", "traffic")
    programs = [program(job, {}).__name__ for job in jobs]
    assert programs == ["Archive", "Archive", "Traffic"]
    assert program("attribution", {}) is Declared


def test_no_job_takes_more_than_the_archive_in_the_same_time() -> None:
    plan = load_plan("local")
    settings = plan.spark.rendered()["settings"]
    rates = {}
    for job in plan.jobs:
        own = settings["common"] | settings[job]
        config: Any = SimpleNamespace(settings={job: own})
        context = JobContext(job, config, *[None] * 4)  # type: ignore[arg-type]
        rates[job] = context.max_offsets / max(own["trigger_seconds"], 1)
        assert context.max_offsets == plan.spark.settings.batch_records(job)  # as operators see it
    assert len(rates) > 1
    assert rates["archive"] == rates["traffic"] == max(rates.values())
