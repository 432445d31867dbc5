"""A job is counted again by the version that runs, where memory is to spare."""

import json
import os
from types import SimpleNamespace

import pytest
from millrace_gateway import commands, recount
from millrace_gateway.submit import NotDeployed

from tests.gateway.fakes import RUNNING_V2, Registry, program

QUESTION = {"job": "sessions", "start": "2026-01-01T00:00:00", "end": "2026-01-02T00:00:00"}


@pytest.fixture
def _deployed(deployments):
    (deployments / "insights-v2" / "insights.json").write_text(json.dumps({"jobs": ["sessions"]}))


@pytest.mark.usefixtures("_deployed")
def test_the_version_that_runs_counts(settings):
    found = recount.running_version(Registry(RUNNING_V2), settings, "sessions")
    assert (found.application, found.version) == ("insights", "v2")
    with pytest.raises(NotDeployed, match="no application was started that runs job clicks"):
        recount.running_version(Registry(RUNNING_V2), settings, "clicks")


@pytest.mark.usefixtures("_deployed")
def test_it_is_small_and_of_the_gateway_s_account(settings):
    what = recount.running_version(Registry(RUNNING_V2), settings, "sessions")
    command = recount.command(what, settings, recount.COUNT, QUESTION)
    assert {"--property=MemoryMax=900M", "--property=User=gateway"} <= set(command)
    assert f"--setenv=PYTHONPATH={what.package}:/gateway.zip" in command
    assert str(settings.spark_submit.parent / "python") in command
    assert command[-3:] == [f"--{name}={value}" for name, value in QUESTION.items()]


@pytest.mark.usefixtures("_deployed")
@pytest.mark.parametrize("busy", ["", "upkeep", "recount"])
def test_memory_is_for_one(settings, tmp_path, monkeypatch, capfd, busy):
    """A `systemctl` and a `systemd-run` of ours: one of the units may be at work."""
    state = f'test "$4" = "{busy}" && echo activating || echo inactive'
    for name, script in (("systemctl", state), ("systemd-run", "echo '{}'; exit 3")):
        program(tmp_path / "bin", name, script)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    what = recount.running_version(Registry(RUNNING_V2), settings, "sessions")
    if busy:
        with pytest.raises(recount.Busy, match=f"edge-1: {busy} is at work"):
            recount.run(what, settings, recount.COUNT, QUESTION)
    else:
        assert recount.run(what, settings, recount.COUNT, QUESTION) == 3
    assert capfd.readouterr().out == ("" if busy else "{}\n")


@pytest.mark.usefixtures("_deployed")
def test_a_question_comes_through_stdin_as_it_is(settings, tmp_path, monkeypatch, capfd):
    for name, script in (("systemctl", "echo inactive"), ("systemd-run", 'echo "$@"; cat')):
        program(tmp_path / "bin", name, script)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    question = tmp_path / "question"
    question.write_text('{"key": {"url": "/$HOME/${PATH}/%h\'"}}')
    before = os.dup(0)
    os.dup2(os.open(question, os.O_RDONLY), 0)
    try:
        with pytest.raises(SystemExit, match="0"):
            commands._why(Registry(RUNNING_V2), settings, SimpleNamespace(job="sessions"))
    finally:
        os.dup2(before, 0)
    called, said = capfd.readouterr().out.split("\n", 1)
    assert f"-m {recount.EXPLAIN} " in called
    assert called.endswith("--job=sessions")
    assert said == question.read_text()


def test_the_upkeep_waits_for_a_recount(settings, monkeypatch, capsys):
    monkeypatch.setattr(recount, "at_work", lambda units: recount.UNIT in units)
    commands._upkeep(Registry(RUNNING_V2), settings, SimpleNamespace(due=False))
    assert "a recount is at work" in capsys.readouterr().out
