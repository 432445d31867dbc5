import zipfile
from pathlib import Path

import pytest

from millrace.common.errors import OperatorError
from millrace.setup import jobs_package
from millrace.setup.jobs_package import GATEWAY, JOBS, SHARED


@pytest.fixture
def source(tmp_path: Path) -> Path:
    files = {
        f"{JOBS}/main.py": "main = 1\n",
        f"{JOBS}/jobs/traffic.py": "traffic = 1\n",
        f"{JOBS}/jobs/__pycache__/traffic.cpython-311.pyc": "compiled",
        f"{GATEWAY}/decide.py": "decide = 1\n",
        f"{SHARED}/strict.py": "strict = 1\n",
    }
    for name, content in files.items():
        path = tmp_path / "source" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(content)
    return tmp_path / "source"


def names(package: jobs_package.Package) -> list[str]:
    return zipfile.ZipFile(package.path).namelist()


def test_jobs_and_gateway_are_packed_apart_and_without_compiled_files(source, tmp_path):
    packages = jobs_package.build(source, tmp_path)
    assert names(packages["jobs"]) == [
        "millrace_jobs/jobs/traffic.py",
        "millrace_jobs/main.py",
        "millrace_shared/strict.py",
    ]
    assert names(packages["gateway"]) == [
        "millrace_gateway/decide.py",
        "millrace_shared/strict.py",
    ]


def test_equal_sources_make_equal_bytes_whatever_their_dates_and_permissions(source, tmp_path):
    first = jobs_package.build(source, tmp_path / "first")["jobs"]
    main = source / JOBS / "main.py"
    main.touch()
    main.chmod(0o700)
    second = jobs_package.build(source, tmp_path / "second")["jobs"]
    assert first.path.name == second.path.name
    assert first.path.read_bytes() == second.path.read_bytes()


def test_a_changed_job_makes_another_version_of_the_jobs_alone(source, tmp_path):
    before = jobs_package.build(source, tmp_path)
    (source / JOBS / "jobs" / "traffic.py").write_text("traffic = 2\n")
    after = jobs_package.build(source, tmp_path)
    assert before["jobs"].digest != after["jobs"].digest
    assert before["gateway"] == after["gateway"]


def test_a_change_of_what_they_share_makes_another_version_of_both(source, tmp_path):
    before = jobs_package.build(source, tmp_path)
    (source / SHARED / "strict.py").write_text("strict = 2\n")
    after = jobs_package.build(source, tmp_path)
    assert all(before[kind].digest != after[kind].digest for kind in ("jobs", "gateway"))


def test_a_renamed_file_makes_another_version(source, tmp_path):
    before = jobs_package.build(source, tmp_path)["jobs"]
    jobs = source / JOBS / "jobs"
    (jobs / "traffic.py").rename(jobs / "visits.py")
    assert jobs_package.build(source, tmp_path)["jobs"].digest != before.digest


def test_an_empty_source_is_refused(tmp_path):
    with pytest.raises(OperatorError, match="holds no source file"):
        jobs_package.build(tmp_path / "nothing", tmp_path)


def test_the_real_jobs_contain_what_spark_submit_runs(tmp_path):
    assert "millrace_jobs/main.py" in names(jobs_package.build(target=tmp_path)["jobs"])


def test_jobs_of_another_repository_are_packed_beside_ours(source, tmp_path):
    theirs = tmp_path / "theirs"
    theirs.mkdir()
    for name in ("errors.py", "errors.yaml", "slow.sql", "slow.yaml", "notes.py"):
        (theirs / name).write_text("x = 1\n")
    packages = jobs_package.build(source, tmp_path, [theirs])
    added = set(names(packages["jobs"])) - set(names(jobs_package.build(source, tmp_path)["jobs"]))
    # What has no settings is no job.
    assert added == {"millrace_jobs/jobs/errors.py", "millrace_jobs/jobs/slow.sql"}
    assert packages["gateway"] == jobs_package.build(source, tmp_path)["gateway"]
