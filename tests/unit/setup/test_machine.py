"""The base image's name, the Docker engine's refusals, and what commands say when they fail."""

import pytest

from millrace.common.errors import OperatorError
from millrace.setup import docker_engine, kernel, processes
from millrace.setup.image import SCRIPT, image_tag, load_recipe, recipe_digest
from millrace.setup.machine import steps
from millrace.setup.python_env import requirements
from millrace.setup.versions import load_versions


def test_the_image_has_another_name_when_its_recipe_changes():
    recipe, script = load_recipe(), SCRIPT.read_text()
    more = recipe.model_copy(update={"packages": [*recipe.packages, "vim-tiny"]})
    digests = {
        recipe_digest(recipe, script),
        recipe_digest(more, script),
        recipe_digest(recipe, script + "\n"),
    }
    assert len(digests) == 3
    assert image_tag() == f"millrace/host:{recipe_digest(recipe, script)}"


def test_there_is_a_step_for_every_distribution():
    assert {step.name for step in steps()} >= set(load_versions().distributions)


def test_the_same_pulumi_is_pinned_for_the_engine_and_the_sdk():
    assert f"\npulumi=={load_versions().pulumi} " in requirements("toolkit").read_text()


def test_the_same_spark_is_pinned_for_python_and_the_distribution():
    spark = load_versions().distributions["spark"].version
    assert f"\npyspark=={spark} " in requirements("spark-jobs").read_text()


def test_a_named_docker_engine_that_is_away_is_not_replaced(monkeypatch):
    monkeypatch.setenv("DOCKER_HOST", "tcp://127.0.0.1:1")
    with pytest.raises(OperatorError, match=r"DOCKER_HOST=tcp://127\.0\.0\.1:1"):
        docker_engine.ensure_docker(print)


def test_a_docker_socket_of_others_is_not_replaced(monkeypatch, tmp_path):
    monkeypatch.delenv("DOCKER_HOST", raising=False)
    monkeypatch.setattr(docker_engine, "_answering", lambda: None)
    monkeypatch.setattr(docker_engine, "SOCKET", tmp_path / "docker.sock")
    monkeypatch.setattr(docker_engine.os, "access", lambda *_: False)
    (tmp_path / "docker.sock").touch()
    with pytest.raises(OperatorError, match=r"no write access to .*docker\.sock"):
        docker_engine.ensure_docker(print)


def test_a_failing_command_tells_its_last_words():
    script = "seq 100; echo the reason >&2; exit 3"
    with pytest.raises(OperatorError) as refused:
        processes.run(["sh", "-c", script], what="counting", hint="count less")
    lines = refused.value.message.splitlines()
    assert lines[0] == "counting failed (3):"
    assert lines[-1] == "the reason"
    assert len(lines) == 1 + processes.TAIL
    assert refused.value.hint == "count less"


def test_root_work_without_a_password_less_sudo_says_so(monkeypatch):
    monkeypatch.setattr(processes.os, "geteuid", lambda: 1000)
    monkeypatch.setattr(processes.shutil, "which", lambda _: "/usr/bin/sudo")
    denied = processes.subprocess.CompletedProcess([], 1)
    monkeypatch.setattr(processes.subprocess, "run", lambda *_, **__: denied)
    with pytest.raises(OperatorError, match="`apt-get update` needs root") as refused:
        processes.as_root(["apt-get", "update"])
    assert "sudo -v" in refused.value.hint


def test_a_kernel_limit_is_raised_and_never_lowered(monkeypatch, tmp_path):
    ran = []
    monkeypatch.setattr(kernel, "SYSCTL", tmp_path)
    monkeypatch.setattr(kernel, "as_root", list)
    monkeypatch.setattr(kernel, "run", lambda command, **_: ran.append(command))
    limit = tmp_path / "fs" / "inotify" / "max_user_instances"
    limit.parent.mkdir(parents=True)
    for value in ("128", "1048576"):
        limit.write_text(f"{value}\n")
        kernel.ensure_limits(lambda said: None)
    assert ran == [["sysctl", "-qw", "fs.inotify.max_user_instances=1024"]]


def test_no_requirement_names_an_address_or_lacks_a_hash():
    for path in requirements("toolkit").parent.glob("*.txt"):
        text = path.read_text()
        assert "://" not in text, path.name
        pins = [line for line in text.splitlines() if "==" in line]
        assert all(line.endswith("\\") for line in pins), path.name
