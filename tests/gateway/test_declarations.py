"""Declared jobs that can't be run are refused before anything is touched."""

import json
import zipfile
from pathlib import Path

import millrace_jobs
import pytest
from millrace_gateway import declarations
from millrace_gateway.submit import Deployment


def packed(folder: Path, script: str | None) -> Deployment:
    """A version whose analysis is this program; None if it has none."""
    with zipfile.ZipFile(folder / "millrace_jobs.zip", "w") as package:
        package.writestr("millrace_jobs/__init__.py", "")
        if script is not None:
            package.writestr("millrace_jobs/check.py", script)
    (folder / "insights.json").write_text(json.dumps({"jobs": ["theirs"]}))
    return Deployment("insights", "v2", folder)


@pytest.mark.parametrize("script", ["", None])  # None: a version that is older than the analysis
def test_jobs_that_can_be_run_may(tmp_path: Path, script: str | None) -> None:
    declarations.check(packed(tmp_path, script))


@pytest.mark.parametrize(
    ("script", "told"),
    [
        ("print('theirs.sql:3:8: no such column'); raise SystemExit(1)", "theirs.sql:3:8: no such"),
        ("raise SystemExit('no Java')", "no analysis: no Java"),
    ],
)
def test_a_job_that_cant_be_run_is_refused_with_its_place(
    tmp_path: Path, script: str, told: str
) -> None:
    with pytest.raises(declarations.DeclarationRejected, match=told) as refused:
        declarations.check(packed(tmp_path, script))
    assert "insights v2 can't be run" in str(refused.value)
    assert "Nothing was changed" in str(refused.value)


def test_an_analysis_has_its_own_version_and_our_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    beside = tmp_path / "packages"
    beside.mkdir()
    (beside / "beside.py").write_text("")
    monkeypatch.setenv("PYTHONPATH", f"{beside}:{Path(millrace_jobs.__file__).parents[1]}")
    script = "import beside, millrace_jobs; assert 'millrace_jobs.zip' in millrace_jobs.__file__"
    declarations.check(packed(tmp_path, script))


def test_an_analysis_that_hangs_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(declarations, "SECONDS", 0.5)
    with pytest.raises(declarations.DeclarationRejected, match="try again"):
        declarations.check(packed(tmp_path, "import time; time.sleep(3600)"))
