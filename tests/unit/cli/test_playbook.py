"""A line per play and the reason of a failure, from the events of real runs of Ansible."""

import json
import re
from contextlib import nullcontext
from pathlib import Path

import pytest

from millrace.cli import playbook
from millrace.cli.playbook import OWN_OUTPUT, run_playbook
from millrace.common.console import Console
from millrace.common.errors import OperatorError
from millrace.plan import load_plan

PLAN = load_plan("local")

INVENTORY = {
    "all": {"vars": {"ansible_connection": "local"}},
    "_meta": {"hostvars": {"here-1": {}, "here-2": {}}},
    "here": {"hosts": ["here-1", "here-2"]},
}
GOOD = {"name": "A good play", "hosts": "here", "gather_facts": False}
BAD = GOOD | {
    "name": "A play [that] fails",
    "tasks": [
        {
            "name": "Break it",
            "ansible.builtin.command": "sh -c 'echo why >&2; exit 7'",
            "when": "inventory_hostname == 'here-2'",
        }
    ],
}


def task(command: str, **more: object) -> dict:
    return {"name": "Do it", "ansible.builtin.command": command, **more}


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    """Runs plays as the playbook `some.yml`, with arguments: what a log shows, or a terminal."""
    ansible = tmp_path / "ansible"
    (ansible / "playbooks").mkdir(parents=True)
    for name in ("ansible.cfg", "plugins"):
        (ansible / name).symlink_to(playbook.ANSIBLE / name)
    (ansible / "inventory.json").write_text(json.dumps(INVENTORY))
    script = ansible / "inventory" / "stack.py"
    script.parent.mkdir()
    script.write_text(f"#!/bin/sh\ncat {ansible}/inventory.json\n")
    script.chmod(0o755)
    monkeypatch.setattr(playbook, "ANSIBLE", ansible)
    monkeypatch.setattr(playbook, "stack_state", lambda stack: tmp_path)
    monkeypatch.setattr(playbook.zookeeper, "alone", lambda plan, what: nullcontext(True))

    def run(plays: list[dict] | str, *arguments: str, terminal: bool = False) -> str:
        text = plays if isinstance(plays, str) else json.dumps(plays)
        (ansible / "playbooks" / "some.yml").write_text(text)
        shown = (tmp_path / "shown").open("w")
        console = Console(width=120, file=shown, force_terminal=terminal, color_system=None)
        try:
            run_playbook(PLAN, "some.yml", arguments, console)
        finally:
            console.file.close()
        return (tmp_path / "shown").read_text()

    return run


CHANGE = task("true", when="inventory_hostname == 'here-1'")
PLAYS = [GOOD | {"tasks": [CHANGE, task("true", changed_when=False)]}]


def test_on_a_terminal_a_play_is_one_line_with_its_hosts_and_changes(run):
    shown = run(PLAYS, terminal=True)
    [play] = re.findall("✓ A good play.*", shown)
    assert "2 hosts    1 changed" in play
    assert re.search(r"2 hosts, 1 changed, \d+:\d\d minutes\n", shown)


def test_a_log_has_when_it_begins_and_how_it_ended(run):
    log, begin, total = run(PLAYS).splitlines()
    assert log.endswith("some.log")
    assert begin == "some.yml …"
    assert re.fullmatch(r"2 hosts, 1 changed, \d+:\d\d minutes", total)


def test_the_whole_log_is_in_the_file(run, tmp_path: Path):
    run([GOOD | {"tasks": [task("true")]}])
    log = (tmp_path / "some.log").read_text()
    assert "TASK [Do it]" in log
    assert "here-2                     : ok=1" in log


def test_a_failure_names_play_task_host_reason_and_log(run, tmp_path: Path):
    with pytest.raises(OperatorError) as caught:
        run([GOOD | {"tasks": [task("true")]}, BAD])
    first, second = caught.value.message.splitlines()[:2]
    assert first == "A play [that] fails: the task 'Break it' failed"
    assert second.startswith("here-2: non-zero return code")
    assert "why" in caught.value.message
    assert "here-1" not in caught.value.message
    assert str(tmp_path / "some.log") in caught.value.hint
    assert "✗ A play [that] fails" in (tmp_path / "shown").read_text()


def test_a_failed_loop_says_which_items_failed(run):
    looped = task("sh -c 'exit {{ item }}'", loop=[0, 3], changed_when=False)
    with pytest.raises(OperatorError, match="3: non-zero return code"):
        run([GOOD | {"tasks": [looped]}])


def test_a_failure_that_is_ignored_is_none(run):
    assert "failed" not in run([GOOD | {"tasks": [task("false", ignore_errors=True)]}])


def test_a_file_that_cannot_be_read_is_told_by_ansible_itself(run):
    with pytest.raises(OperatorError, match="playbook must be a list of plays"):
        run("nonsense: true")


def test_a_stack_without_hosts_is_refused_in_its_own_words(run, tmp_path: Path):
    script = tmp_path / "ansible" / "inventory" / "stack.py"
    script.write_text("#!/bin/sh\necho 'stack local has no hosts yet' >&2\nexit 1\n")
    with pytest.raises(OperatorError, match="stack local has no hosts yet"):
        run([GOOD | {"tasks": [task("true")]}])


def test_an_unknown_playbook_is_refused_with_those_there_are():
    with pytest.raises(OperatorError) as caught:
        run_playbook(PLAN, "sight.yml", [], Console())
    assert "site.yml" in caught.value.hint


def test_who_asks_for_ansibles_own_output_gets_it(run, capfd: pytest.CaptureFixture):
    assert run([GOOD | {"tasks": [task("true")]}], "--check", "--diff") == ""
    assert "PLAY [A good play]" in capfd.readouterr().out


@pytest.mark.parametrize("argument", ["-D", "-CD", "-v", "-vvv", "--diff", "--list-tasks"])
def test_arguments_that_ask_for_it(argument: str):
    assert OWN_OUTPUT.match(argument)


@pytest.mark.parametrize("argument", ["--check", "-C", "-e", "--limit", "version=1", "-l"])
def test_arguments_that_do_not(argument: str):
    assert not OWN_OUTPUT.match(argument)


def test_without_a_lock_it_runs_and_says_so(run, monkeypatch):
    monkeypatch.setattr(playbook.zookeeper, "alone", lambda plan, what: nullcontext(False))
    shown = run([GOOD | {"tasks": [task("true")]}])
    assert "no lock keeps another operator away" in shown
    assert "2 hosts, 2 changed" in shown


def test_while_another_operator_is_at_work_nothing_is_run(run, monkeypatch, tmp_path: Path):
    def held(plan, what):
        raise OperatorError(f"the cluster is being changed: {what}, by somebody")

    monkeypatch.setattr(playbook.zookeeper, "alone", held)
    with pytest.raises(OperatorError, match=r"some\.yml, by somebody"):
        run([GOOD | {"tasks": [task(f"touch {tmp_path}/done")]}])
    assert not (tmp_path / "done").exists()
