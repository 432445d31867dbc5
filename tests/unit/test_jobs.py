"""Jobs of one file: their settings, and what is refused before anything is made."""

from pathlib import Path

import pytest
import yaml

from millrace.common.errors import OperatorError
from millrace.config import load_component, load_environment
from millrace.jobs import folders_of, load_job_settings, problems, with_jobs

WHY = {"why": "because it is a test", "source": "a test"}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    declare(tmp_path, "errors", {"window_seconds": {"value": 60, **WHY}})
    return tmp_path


def declare(folder: Path, job: str, settings: dict, code: str = ".py") -> None:
    content = {"summary": "A test.", "settings": settings}
    (folder / f"{job}.yaml").write_text(yaml.safe_dump(content))
    (folder / f"{job}{code}").write_text("")


def test_settings_are_the_defaults_and_what_the_job_says(folder: Path) -> None:
    errors = load_job_settings([folder])["errors"]
    assert errors["window_seconds"].value == 60
    assert errors["checkpoint"].value == "errors"
    assert errors["keep_days"].value == 30


def test_a_job_without_its_code_is_refused(folder: Path) -> None:
    (folder / "errors.py").unlink()
    with pytest.raises(OperatorError, match=r"neither errors.py nor errors.sql"):
        load_job_settings([folder])


def test_a_job_without_its_window_is_refused(folder: Path) -> None:
    declare(folder, "endless", {"keep_days": {"value": 1, **WHY}})
    with pytest.raises(OperatorError, match="window_seconds is missing"):
        load_job_settings([folder])


@pytest.mark.parametrize("taken", ["sessions", "traffic"])
def test_a_name_that_is_taken_is_refused(folder: Path, taken: str) -> None:
    declare(folder, taken, {"window_seconds": {"value": 60, **WHY}})
    with pytest.raises(OperatorError, match="rename yours"):
        with_jobs(load_component("spark"), load_job_settings([folder]))


def test_an_application_runs_only_jobs_that_are_declared(folder: Path) -> None:
    spark = with_jobs(load_component("spark"), load_job_settings([folder]))
    local = load_environment("local")
    running = local.model_copy(update={"applications": {"insights": ["traffic", "errors"]}})
    assert list(problems(running, spark)) == []
    unknown = local.model_copy(update={"applications": {"insights": ["erors"]}})
    [problem] = problems(unknown, spark)
    assert "no job erors" in problem


def test_a_folder_that_is_not_there_is_refused() -> None:
    wrong = load_environment("local").model_copy(update={"job_folders": ["../nowhere"]})
    with pytest.raises(OperatorError, match="is no folder"):
        folders_of(wrong)
