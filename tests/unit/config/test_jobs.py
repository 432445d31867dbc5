"""Jobs of one file: their settings, and what is refused before anything is made."""

from pathlib import Path

import pytest
import yaml

from millrace.common.errors import OperatorError
from millrace.config import load_component, load_environment
from millrace.config.jobs import archives, folders_of, load_job_settings, problems, with_jobs
from millrace.plan import load_plan

STREAMS = ["events", "impressions", "clicks"]
WHY = {"why": "because it is a test", "source": "a test"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    declare(tmp_path, "errors", {"watermark_seconds": {"value": 60, **WHY}})
    return tmp_path


def declare(folder: Path, job: str, settings: dict, code: str = ".py") -> None:
    content = {"summary": "A test.", "settings": settings}
    (folder / f"{job}.yaml").write_text(yaml.safe_dump(content))
    (folder / f"{job}{code}").write_text("")


def test_settings_are_the_defaults_and_what_the_job_says(folder: Path) -> None:
    errors = load_job_settings(STREAMS, [folder])["errors"]
    assert errors["watermark_seconds"].value == 60
    assert errors["checkpoint"].value == "errors"
    assert errors["keep_days"].value == 30


def test_a_job_without_its_code_is_refused(folder: Path) -> None:
    (folder / "errors.py").unlink()
    with pytest.raises(OperatorError, match=r"neither errors.py nor errors.sql"):
        load_job_settings(STREAMS, [folder])


def test_a_summary_is_all_that_a_job_must_say(folder: Path) -> None:
    (folder / "plain.yaml").write_text("summary: A test.\n")
    (folder / "plain.sql").write_text("")
    assert load_job_settings(STREAMS, [folder])["plain"]["checkpoint"].value == "plain"


@pytest.mark.parametrize("taken", ["sessions", "traffic"])
def test_a_name_that_is_taken_is_refused(folder: Path, taken: str) -> None:
    declare(folder, taken, {})
    with pytest.raises(OperatorError, match="rename yours"):
        with_jobs(load_component("spark"), load_job_settings(STREAMS, [folder]))


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        ({"stream": "impresions"}, "settings.stream: no stream impresions .* events, impressions"),
        ({"streams": ["impressions", "klicks"]}, "settings.streams: no stream klicks"),
        ({"streams": ["clicks", "clicks"]}, "settings.streams: a stream stands twice"),
        ({"streams": "clicks"}, "settings.streams: 'clicks' is no list"),
        ({"streams": ["clicks"], "stream": "clicks"}, "leave one out"),
    ],
)
def test_streams_that_cant_be_read_are_refused_with_file_and_key(
    folder: Path, settings: dict, reason: str
) -> None:
    declare(folder, "mine", {name: {"value": value, **WHY} for name, value in settings.items()})
    with pytest.raises(OperatorError, match=rf"mine.yaml: .*{reason}"):
        load_job_settings(STREAMS, [folder])


def test_only_archives_are_called_so(folder: Path) -> None:
    declare(folder, "archive_all", {})
    with pytest.raises(OperatorError, match="only archives of streams"):
        load_job_settings(STREAMS, [folder])


def test_each_further_stream_has_its_archive() -> None:
    spark = load_component("spark")
    assert archives(spark, ["events"]) == {}
    [(job, settings)] = archives(spark, ["clicks", "events"]).items()
    assert job == "archive_clicks"
    assert (settings["stream"].value, settings["checkpoint"].value) == ("clicks", job)
    assert settings["keep_days"] == spark.settings["archive"]["keep_days"]


def test_an_application_runs_only_jobs_that_are_declared(folder: Path) -> None:
    spark = with_jobs(load_component("spark"), load_job_settings(STREAMS, [folder]))
    local = load_environment("local")
    running = local.model_copy(update={"applications": {"insights": ["traffic", "errors"]}})
    assert list(problems(running, spark)) == []
    unknown = local.model_copy(update={"applications": {"insights": ["erors"]}})
    [problem] = problems(unknown, spark)
    assert "no job erors" in problem


def test_a_folder_on_trial_has_its_jobs_run_beside_the_others(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MILLRACE_TRIAL", str(folder))
    tried = load_plan("local")
    monkeypatch.delenv("MILLRACE_TRIAL")
    plan = load_plan("local")
    assert tried.jobs == [*plan.jobs, "errors"]
    assert tried.job_folders == [*plan.job_folders, str(folder)]
    assert tried.digest != plan.digest


def test_a_folder_that_is_not_there_is_refused() -> None:
    wrong = load_environment("local").model_copy(update={"job_folders": ["../nowhere"]})
    with pytest.raises(OperatorError, match="is no folder"):
        folders_of(wrong)
