"""A job's settings: what is missing or of another type is refused by its name, at once."""

import dataclasses
from typing import Any

import pytest
from millrace_jobs import config, contract
from millrace_jobs.kinds import read_settings
from millrace_jobs.settings import (
    ArchiveSettings,
    DeclaredSettings,
    JobSettings,
    RealTimeSettings,
    TrafficSettings,
    WindowedSettings,
)

from millrace.inventory import deployment
from millrace.plan import load_plan
from millrace_shared.strict import Misconfigured
from tests.jobs.samples import settings_of

PLAN = load_plan("local")
# By its settings, which the plan has for it, each kind of job.
KINDS = {"archive": ArchiveSettings, "traffic": TrafficSettings, "sessions": DeclaredSettings}


def test_a_job_has_the_settings_of_its_kind() -> None:
    for job, kind in KINDS.items():
        assert type(settings_of(job)) is kind
    assert type(settings_of("archive_clicks", like="archive")) is ArchiveSettings
    assert type(settings_of("alerts", like="sessions", trigger="real-time")) is RealTimeSettings


@pytest.mark.parametrize("job", KINDS)
def test_each_of_them_that_is_missing_is_named(job: str) -> None:
    given = settings_of(job).given
    for field in dataclasses.fields(KINDS[job]):
        if field.name == "given":
            continue
        rest = {name: value for name, value in given.items() if name != field.name}
        if field.default is not dataclasses.MISSING:
            assert getattr(read_settings(job, rest), field.name) == field.default
        else:
            with pytest.raises(Misconfigured) as refused:
                read_settings(job, rest)
            assert str(refused.value) == f"settings of job {job}: {field.name}: is missing"


@pytest.mark.parametrize(
    ("job", "changes", "complaint"),
    [
        ("traffic", {"tasks": "4"}, "traffic: tasks: '4' is no int"),
        ("traffic", {"page_view_statuses": ["200"]}, "traffic: page_view_statuses[0]: '200'"),
        ("archive", {"keep_days": None}, "archive: keep_days: None is no int"),
        ("sessions", {"streams": "events"}, "sessions: streams: 'events' is no list"),
        ("sessions", {"max_keys": True}, "sessions: max_keys: True is no int"),
    ],
)
def test_one_of_another_type_is_named(job: str, changes: dict[str, Any], complaint: str) -> None:
    with pytest.raises(Misconfigured) as refused:
        settings_of(job, **changes)
    assert str(refused.value).startswith(f"settings of job {complaint}")


def test_a_deployment_is_refused_before_its_drivers_are() -> None:
    content = deployment(PLAN, "insights") | {"version": ""}
    content["settings"]["traffic"]["pages_tracked"] = "many"
    for reading in (config.parse, contract.of):
        with pytest.raises(Misconfigured, match="job traffic: pages_tracked: 'many'"):
            reading(content)


def test_what_drivers_share_is_checked_too() -> None:
    content = deployment(PLAN, "insights") | {"version": ""}
    content["settings"]["common"]["lease_seconds"] = "2.5"
    with pytest.raises(Misconfigured, match=r"lease_seconds: '2\.5' is no float"):
        config.parse(content)


def test_a_job_s_function_gets_everything_as_it_was_given() -> None:
    settings = settings_of("theirs", like="sessions", threshold=0.5, trigger_seconds=5)
    assert settings.given["threshold"] == 0.5
    assert settings.given["trigger_seconds"] == 5
    assert isinstance(settings.given["trigger_seconds"], int)  # as a query's text has it
    assert settings.given.keys() >= {
        "lag_seconds",
        "checkpoints",
    }  # that the framework doesn't read


def test_what_a_job_reads() -> None:
    assert settings_of("traffic").stream_names == ["events"]
    assert settings_of("attribution").stream_names == ["impressions", "clicks"]


def test_settings_of_another_kind_are_a_mistake_of_the_code() -> None:
    settings: JobSettings = settings_of("sessions")
    assert settings.as_kind(WindowedSettings) is settings
    with pytest.raises(TypeError, match="DeclaredSettings are no ArchiveSettings"):
        settings.as_kind(ArchiveSettings)
