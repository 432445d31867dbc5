"""The Ansible module `text_files`, run as Ansible runs it, on this machine."""

import json
import os
import stat
import subprocess
import sys
from pathlib import Path

import pytest

from millrace.common.paths import ANSIBLE

RUN = [Path(sys.executable).with_name("ansible"), "localhost", "-m", "text_files"]
RUN += ["-i", "localhost,", "-c", "local"]
ME = {"owner": str(os.getuid()), "group": str(os.getgid())}


@pytest.fixture
def write(tmp_path: Path):
    """Runs the module on a directory: what it answers."""

    def write(files: dict[str, str], *options: str, **more: str) -> dict:
        arguments = {"directory": str(tmp_path / "etc"), "files": files} | ME | more
        done = subprocess.run(
            [*RUN, "-a", json.dumps(arguments), *options],
            cwd=ANSIBLE,
            env=os.environ | {"ANSIBLE_CALLBACK_RESULT_FORMAT": "json"},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        diff, _, result = done.stdout.partition("=> {")
        return json.loads("{" + result) | {"diff": diff}

    return write


def names(result: dict, folder: Path) -> list[str]:
    return [str(Path(path).relative_to(folder / "etc")) for path in result["paths"]]


def test_it_writes_what_differs_and_nothing_else(write, tmp_path: Path):
    first = write({"a.conf": "one\n", "deeper/b.conf": "two ∑\n"}, mode="0640")
    assert names(first, tmp_path) == ["a.conf", "deeper/b.conf"]
    assert (tmp_path / "etc/deeper/b.conf").read_text() == "two ∑\n"
    assert stat.S_IMODE((tmp_path / "etc/a.conf").stat().st_mode) == 0o640

    (tmp_path / "etc/other").write_text("a stranger's")
    second = write({"a.conf": "one\n", "deeper/b.conf": "three"}, mode="0640")
    assert names(second, tmp_path) == ["deeper/b.conf"]
    assert (tmp_path / "etc/other").read_text() == "a stranger's"
    assert not write({"a.conf": "one\n", "deeper/b.conf": "three"}, mode="0640")["changed"]


def test_a_wrong_mode_is_put_right(write, tmp_path: Path):
    write({"run.sh": "#!/bin/sh\n"}, mode="0755")
    (tmp_path / "etc/run.sh").chmod(0o600)
    assert write({"run.sh": "#!/bin/sh\n"}, mode="0755")["changed"]
    assert stat.S_IMODE((tmp_path / "etc/run.sh").stat().st_mode) == 0o755


def test_a_link_is_replaced_and_not_followed(write, tmp_path: Path):
    target = tmp_path / "target"
    target.write_text("same\n")
    (tmp_path / "etc").mkdir()
    (tmp_path / "etc/a").symlink_to(target)
    assert write({"a": "same\n"})["changed"]
    assert not (tmp_path / "etc/a").is_symlink()
    assert target.read_text() == "same\n"


def test_check_mode_shows_the_lines_and_writes_nothing(write, tmp_path: Path):
    write({"a.conf": "old\n"})
    result = write({"a.conf": "new\n", "b.conf": "more\n"}, "--check", "--diff")
    assert names(result, tmp_path) == ["a.conf", "b.conf"]
    assert {"-old", "+new", "+more"} <= set(result["diff"].splitlines())
    assert (tmp_path / "etc/a.conf").read_text() == "old\n"
    assert not (tmp_path / "etc/b.conf").exists()


def test_what_is_not_text_is_refused_with_its_path(write, tmp_path: Path):
    """A template of nothing but a number makes a number."""
    with pytest.raises(AssertionError, match="etc/id: 7 is int, not text"):
        write({"id": 7})
