"""Runbooks: complete, valid shell, and valid as experiments."""

import re
import subprocess
import time
from datetime import UTC, datetime
from pathlib import Path

import pytest
import typer
import yaml
from chaoslib.experiment import ensure_experiment_is_valid

from millrace.audit.page_views import page_of
from millrace.cli import app
from millrace.common.paths import ANSIBLE
from millrace.drill.experiment import build_experiment
from millrace.drill.runbook import RUNBOOKS, load_operations, load_runbook, load_runbooks
from millrace.hosts.power import Action
from millrace.hosts.roles import ROLES
from millrace.plan import load_plan
from millrace.weblog import Malformed, parse_line

# Of the fault matrix. 27 is the random nemesis, which has no page.
ROWS = set(range(1, 48)) - {27}
BOOKS = load_runbooks()

each = pytest.mark.parametrize("runbook", BOOKS, ids=lambda runbook: runbook.name)


def test_every_row_of_the_fault_matrix_has_a_runbook():
    assert {row for book in BOOKS for row in book.about.faults} == ROWS


def test_one_runbook_is_the_control_run():
    """It has no fault, and so no alert: its row is the floor of all others."""
    (control,) = (book for book in BOOKS if not book.about.faults)
    assert control.about.alert is None
    assert all(book.about.alert for book in BOOKS if book != control)


@each
def test_blocks_are_valid_shell(runbook):
    for block in runbook.blocks:
        checked = subprocess.run(["bash", "-n"], input=block.script, capture_output=True, text=True)
        assert checked.returncode == 0, f"line {block.line}: {checked.stderr}"


@each
def test_blocks_call_only_what_exists(runbook):
    commands = typer.main.get_command(app).commands.keys()
    for block in runbook.blocks:
        # HDFS has a user of that name.
        assert set(re.findall(r"(?<!=)\bmillrace ([a-z-]+)", block.script)) <= commands
        assert set(re.findall(r"\bmillrace who ([a-z-]+)", block.script)) <= ROLES.keys()
        assert set(re.findall(r"\bmillrace host ([a-z]+)", block.script)) <= set(Action)


def tools_on_hosts(role):
    """What a role installs of its distribution's commands."""
    tasks = yaml.safe_load((ANSIBLE / "roles" / role / "tasks" / "main.yml").read_text())
    tools = [task.get("vars", {}).get("operator_commands_tools", []) for task in tasks]
    return {name for names in tools for name in names}


@each
def test_blocks_call_only_kafka_s_tools_that_hosts_have(runbook):
    for block in runbook.blocks:
        called = set(re.findall(r"(?:-- |&& |; |\| )(kafka-[a-z-]+[a-z]) ", block.script))
        assert called <= tools_on_hosts("kafka_config")


@pytest.mark.parametrize("path", sorted(RUNBOOKS.glob("*.md")), ids=lambda path: path.stem)
def test_a_command_for_a_host_is_words_and_no_text(path):
    """`millrace on` hands words on: a whole line in quotes would be the name of a program."""
    assert re.findall(r"millrace on .* -- [\"'][^\"']* .*", path.read_text()) == []


@each
def test_a_rollback_is_safe_when_nothing_was_injected(runbook, tmp_path):
    """No block ran, so no variable is set: it may only do what is harmless on any host."""
    calls = tmp_path / "calls"
    fake = tmp_path / "millrace"
    fake.write_text(f'#!/bin/sh\necho "$@" >> {calls}\n')
    fake.chmod(0o755)
    for block in runbook.tagged("rollback"):
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", block.script],
            env={"PATH": f"{tmp_path}:/usr/bin:/bin"},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stderr
    called = calls.read_text().splitlines() if calls.exists() else []
    assert [call for call in called if not call.startswith("hosts ")] == []


@each
def test_variables_are_set_before_they_are_used(runbook):
    """Blocks run in a shell that refuses unset ones; a drill would find out too late."""
    injected = "\n".join(block.script for block in runbook.tagged("inject"))
    known = set(re.findall(r"^([A-Z]+)=", injected, re.MULTILINE))
    for block in runbook.blocks:
        known |= set(re.findall(r"^([A-Z]+)=", block.script, re.MULTILINE))
        used = set(re.findall(r"\$\{?([A-Z]+)\b(?!:-)", block.script))
        assert used <= known, f"line {block.line}"


@each
def test_links_lead_to_runbooks(runbook):
    for target in re.findall(r"\]\(([^)]+)\)", runbook.path.read_text()):
        assert (RUNBOOKS / target).exists(), target


@each
def test_drills_stay_out_of_production(runbook):
    assert "prod" not in runbook.about.environments


@each
def test_the_experiment_runs_the_runbooks_blocks_in_order(runbook, tmp_path):
    experiment = build_experiment(runbook, tmp_path)
    ensure_experiment_is_valid(experiment)  # the Chaos Toolkit's own: functions and arguments, too
    steps = [step["name"] for step in experiment["method"]]
    assert steps == ["inject", "hold", "recover", "verify"]
    assert [step["name"] for step in experiment["rollbacks"]] == ["rollback"]


# --- faults of input: what is sent is what the page says ------------------------------------------


LARGEST_BYTES = load_plan("local").streams["events"].fields["bytes"].maximum


def replayed(name: str, folder: Path) -> list[bytes]:
    """The lines that the runbook's injection hands to `millrace replay`, which is a stand-in."""
    sent = folder / "sent"
    fake = folder / "millrace"
    fake.write_text(
        "#!/bin/sh\n"
        f'case "$*" in "replay -") cat > {sent} ;; replay*) cp "$2" {sent} ;; '
        "who*) echo kafka-1 ;; hosts*) echo edge-1 ;; "
        """api*) echo '{"days":[{"window":"1h","events":12},{"window":"1m","events":9}]}' ;; """
        "on*) echo dead-letter:0:7; echo dead-letter:1:5 ;; esac\n"
    )
    fake.chmod(0o755)
    (folder / "sleep").symlink_to("/bin/true")
    (block,) = load_runbook(name).tagged("inject")
    path = f"{folder}:/usr/bin:/bin"
    script = f'{block.script}\nrm -f "${{LOG:-}}"\n[ "${{BEFORE:-12}}" = 12 ]'
    environment = {"PATH": path, "TMPDIR": str(folder)}
    subprocess.run(["bash", "-euo", "pipefail", "-c", script], env=environment, check=True)
    return sent.read_bytes().splitlines()


def test_poison_values_are_requests_that_only_their_range_keeps_out(tmp_path):
    began = int(time.time())
    requests = [parse_line(line) for line in replayed("poison-value", tmp_path)]
    assert len(requests) == 15
    assert sum(request.bytes or 0 for request in requests) > 2**63
    assert all(request.bytes > LARGEST_BYTES for request in requests)
    assert all(began <= request.time <= time.time() for request in requests)


def test_a_flood_is_malformed_but_for_a_first_line_that_is_out_of_range(tmp_path):
    first, *garbage = replayed("garbage-flood", tmp_path)
    assert parse_line(first).bytes > LARGEST_BYTES
    assert len(set(garbage)) == len(garbage) == 1_000_000
    with pytest.raises(Malformed):
        parse_line(garbage[-1])


def test_a_flood_of_pages_has_a_million_of_them_now(tmp_path):
    began = int(time.time())
    lines = replayed("cardinality-flood", tmp_path)
    first, last = parse_line(lines[0]), parse_line(lines[-1])
    assert len(lines) == len({line.split()[6] for line in lines}) == 1_000_000
    assert (first.method, first.status, page_of(first.url)) == ("GET", 200, first.url)
    assert all(began <= request.time <= time.time() for request in (first, last))
    assert len({line.split()[0] for line in lines}) == 200  # a partition has as many as another


def test_an_overload_is_two_minutes_of_twice_the_load_of_drills(tmp_path):
    began = int(time.time())
    lines = replayed("overload", tmp_path)
    first, last = parse_line(lines[0]), parse_line(lines[-1])
    assert len(lines) == 120 * 2 * 2000
    assert (first.method, first.status, page_of(first.url)) == ("GET", 200, first.url)
    assert len({parse_line(line).url for line in lines[:4000]}) == 50
    assert all(began <= request.time <= time.time() for request in (first, last))


def test_wrong_clocks_are_of_2099_and_2001_the_future_first(tmp_path):
    """A replay that began with a line from the past would be refused as too late."""
    requests = [parse_line(line) for line in replayed("old-clock", tmp_path)]
    years = [datetime.fromtimestamp(request.time, UTC).year for request in requests]
    assert years == [2099, 2001] * 30
    events = load_plan("local").streams["events"]
    assert all(request.time > events.earliest_seconds for request in requests)
    assert {request.bytes for request in requests} == {1}


# --- operations: followed by hand, but what they call must exist ----------------------------------

OPERATIONS = load_operations()


@pytest.mark.parametrize("name", OPERATIONS)
def test_an_operations_shell_is_valid_and_calls_what_exists(name):
    text = (RUNBOOKS / f"{name}.md").read_text()
    blocks = re.findall(r"^```sh\n(.*?)^```", text, re.DOTALL | re.MULTILINE)
    assert blocks
    commands = typer.main.get_command(app).commands.keys()
    for block in blocks:
        checked = subprocess.run(["bash", "-n"], input=block, capture_output=True, text=True)
        assert checked.returncode == 0, checked.stderr
        assert set(re.findall(r"\bmillrace ([a-z]+)", block)) <= commands
        for playbook in re.findall(r"\bmillrace playbook (\S+)", block):
            assert (ANSIBLE / "playbooks" / playbook).exists()


def test_operations_are_no_drills():
    assert set(OPERATIONS) == {
        "collector-refuses",
        "api-fails",
        "certificate-ends",
        "key-expires",
        "patch-hosts",
        "promise-at-risk",
        "repair-overdue",
        "replace-instance",
        "standby-cold",
        "target-down",
        "upgrade-image",
    }
    assert not set(OPERATIONS) & {book.name for book in BOOKS}
