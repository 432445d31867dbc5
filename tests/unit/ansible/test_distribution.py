"""The homes of distributions on a host: which one is linked, and which earlier ones stay."""

import hashlib
import subprocess
import tarfile
from pathlib import Path

import pytest

from millrace.common.paths import ANSIBLE
from millrace.inventory import build_inventory
from millrace.plan import load_plan
from tests.playbooks import run_here

ROLE = ANSIBLE / "roles" / "distribution"


@pytest.fixture
def software(tmp_path: Path) -> Path:
    """Where a host has its distributions; beside them what is none."""
    folder = tmp_path / "software"
    (folder / "tool-jobs" / ".complete").mkdir(parents=True)
    (folder / "tool-0-unfinished").mkdir()
    return folder


def install(software: Path, version: str) -> None:
    """What role `distribution` does about this version."""
    folder = software.parent
    (folder / "content").write_text(version)
    tarball = folder / f"tool-{version}.tar"
    with tarfile.open(tarball, "w") as tar:
        tar.add(folder / "content", "content")
    artifact = {
        "path": f"{software}/tool",
        "directory": f"{software}/tool-{version}",
        "file": f"millrace-test-{folder.name}-{version}.tar",
        "url": tarball.as_uri(),
        "sha256": hashlib.sha256(tarball.read_bytes()).hexdigest(),
    }
    play = {
        "hosts": "coord-1",
        "vars_files": [f"{ROLE}/defaults/main.yml"],
        "tasks": [
            {
                "ansible.builtin.import_tasks": f"{ROLE}/tasks/main.yml",
                "vars": {"distribution_artifact": artifact},
            }
        ],
    }
    run_here(build_inventory(load_plan("local"), {}, artifacts="http://nowhere"), folder, **play)


def homes(software: Path) -> set[str]:
    return {path.name for path in software.iterdir() if (path / "content").exists()} - {"tool"}


def test_the_one_before_stays_and_what_is_older_goes(software: Path) -> None:
    for version in ("1.0-aa", "1.1-bb", "2.0-cc"):
        install(software, version)
    assert homes(software) == {"tool-1.1-bb", "tool-2.0-cc"}
    assert (software / "tool" / "content").read_text() == "2.0-cc"
    install(software, "1.1-bb")  # back, and nothing is fetched anew or removed
    assert homes(software) == {"tool-1.1-bb", "tool-2.0-cc"}
    assert (software / "tool" / "content").read_text() == "1.1-bb"
    assert (software / "tool-jobs").exists()
    assert (software / "tool-0-unfinished").exists()


def test_what_a_process_runs_from_stays(software: Path) -> None:
    install(software, "1.0-aa")
    running = subprocess.Popen(
        ["sleep", "3600"], env={"HOME_OF_IT": f"{software}/tool-1.0-aa/lib", "PATH": "/usr/bin"}
    )
    try:
        for version in ("1.1-bb", "2.0-cc"):
            install(software, version)
        assert "tool-1.0-aa" in homes(software)
    finally:
        running.kill()
        running.wait()
    install(software, "3.0-dd")
    assert homes(software) == {"tool-2.0-cc", "tool-3.0-dd"}
