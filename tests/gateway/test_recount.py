"""A job is counted again by the version that runs, where memory is to spare."""

import json
import os
import shutil
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
@pytest.mark.parametrize(
    ("ask", "module"),
    [(commands._why, recount.EXPLAIN), (commands._reconcile, recount.RECONCILE)],
)
def test_a_question_comes_through_stdin_as_it_is(
    settings, tmp_path, monkeypatch, capfd, ask, module
):
    for name, script in (("systemctl", "echo inactive"), ("systemd-run", 'echo "$@"; cat')):
        program(tmp_path / "bin", name, script)
    monkeypatch.setenv("PATH", f"{tmp_path / 'bin'}{os.pathsep}{os.environ['PATH']}")
    question = tmp_path / "question"
    question.write_text('{"key": {"url": "/$HOME/${PATH}/%h\'"}}')
    before = os.dup(0)
    os.dup2(os.open(question, os.O_RDONLY), 0)
    try:
        with pytest.raises(SystemExit, match="0"):
            ask(Registry(RUNNING_V2), settings, SimpleNamespace(job="sessions", version=None))
    finally:
        os.dup2(before, 0)
    called, said = capfd.readouterr().out.split("\n", 1)
    assert f"-m {module} " in called
    assert called.endswith("--job=sessions")
    assert said == question.read_text()


def test_the_upkeep_waits_for_a_recount(settings, monkeypatch, capsys):
    monkeypatch.setattr(recount, "at_work", lambda units: recount.UNIT in units)
    commands._upkeep(Registry(RUNNING_V2), settings, SimpleNamespace(due=False))
    assert "a recount is at work" in capsys.readouterr().out


@pytest.mark.usefixtures("_deployed")
@pytest.mark.parametrize("version", [None, "v1"])
def test_the_past_is_counted_by_the_version_that_is_asked_for(
    settings, deployments, monkeypatch, version
):
    shutil.copytree(deployments / "insights-v2", deployments / "insights-v1")
    asked = []
    monkeypatch.setattr(recount, "run", lambda *what: asked.append(what) or 0)
    arguments = SimpleNamespace(job="sessions", version=version)
    with pytest.raises(SystemExit) as ended:
        commands._reconcile(Registry(RUNNING_V2), settings, arguments)
    assert ended.value.code == 0
    [(what, _, module, question)] = asked
    assert (what.version, module) == (version or "v2", recount.RECONCILE)
    assert question == {"job": "sessions"}


@pytest.mark.usefixtures("_deployed")
def test_a_count_that_is_ended_says_that_it_may_be_gone_on_with(settings, monkeypatch, capsys):
    monkeypatch.setattr(recount, "run", lambda *_: 143)
    arguments = SimpleNamespace(job="sessions", version=None)
    with pytest.raises(SystemExit) as ended:
        commands._reconcile(Registry(RUNNING_V2), settings, arguments)
    assert ended.value.code == 143
    assert "goes on from there" in capsys.readouterr().err
