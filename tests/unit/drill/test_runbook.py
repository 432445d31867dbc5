"""Runbooks are parsed strictly, and their blocks run as an operator would run them."""

import re
import shlex
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from millrace.common.durations import parse_duration
from millrace.common.errors import OperatorError
from millrace.drill import blocks
from millrace.drill.blocks import BlockFailed, run_blocks
from millrace.drill.runbook import (
    SECTIONS,
    Block,
    Runbook,
    load_runbook,
    load_runbooks,
    parse_runbook,
)
from millrace.hosts.commands import PATIENCE
from millrace.plan import load_plan
from tests.waiting import PATIENCE_SECONDS, soon

AWAITS = re.compile(r"await healthy(?: --within (\w+))?")

HEAD = """\
---
title: A leader dies
alert: LeaderDied
component: kafka
faults: [1]
blast_radius: one of three
environments: [local]
hold: 0
goal: {produce: 5}
---
# A leader dies
"""


def text(head: str = HEAD, **blocks: str) -> str:
    """A runbook with these blocks; those that a drill needs do nothing unless given."""
    scripts = {"inject": "true", "verify": "true", "rollback": "true"} | blocks
    fences = "".join(f"```sh {tag}\n{script}\n```\n" for tag, script in scripts.items())
    sections = "".join(f"## {section}\n\n" for section in SECTIONS)
    return head + sections + fences


def parse(content: str) -> Runbook:
    return parse_runbook(content, Path("kafka.md"))


def test_front_matter_and_blocks_are_read():
    runbook = parse(text(inject="echo one\necho two"))
    assert runbook.name == "kafka"
    assert runbook.about.goal == {"produce": 5}
    assert [block.script for block in runbook.tagged("inject")] == ["echo one\necho two\n"]
    assert runbook.tagged("recover") == []


def test_a_block_without_a_tag_is_for_people():
    runbook = parse(text() + "```sh\nrm -rf /\n```\n")
    assert {block.tag for block in runbook.blocks} == {"inject", "verify", "rollback"}


def test_a_heading_inside_a_block_is_a_comment():
    assert parse(text(inject="## not a heading"))


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("# no front matter\n", "kafka.md:1: no front matter"),
        (text(HEAD.replace("hold: 0", "hold: : 0")), "kafka.md:8: not valid YAML"),
        (text(HEAD.replace("alert: LeaderDied", "alert: leader-died")), "kafka.md:3: alert"),
        (text(HEAD.replace("produce: 5", "produced: 5")), "kafka.md:9: goal.produced"),
        (text(HEAD.replace("hold: 0", "held: 0")), "kafka.md:8: held"),
        (text().replace("## Expect\n", ""), "kafka.md:19: '## Diagnose' where '## Expect'"),
        (text().replace("## Roll back\n", ""), "the sections are not exactly"),
        (text(injects="true"), "unknown tag 'injects'"),
        (text().replace("sh verify", "sh"), "no block is tagged 'sh verify'"),
        (text() + "```sh\n", "this block is never closed"),
    ],
)
def test_what_is_wrong_is_named_with_its_line(content, message):
    with pytest.raises(OperatorError) as refused:
        parse(content)
    assert message in refused.value.message


def test_an_unknown_runbook_is_answered_with_the_known_ones(tmp_path):
    (tmp_path / "kafka.md").write_text(text())
    (tmp_path / "README.md").write_text("the index")
    with pytest.raises(OperatorError) as refused:
        load_runbook("kafak", tmp_path)
    assert refused.value.hint == "the runbooks are: kafka"


def test_variables_outlive_their_block(tmp_path):
    odd = 'it\'s a "host"'  # quotes survive as well
    runbook = parse(
        text(
            inject=f"HOST={shlex.quote(odd)}\nlower=1",
            recover=f'echo "$HOST|${{lower:-none}}" > {tmp_path}/seen\nMORE=2',
            rollback=f'echo "$HOST|$MORE" >> {tmp_path}/seen',
        )
    )
    for tag in ("inject", "recover", "rollback"):
        run_blocks(runbook, tag, "local", tmp_path / "run")
    assert (tmp_path / "seen").read_text() == f"{odd}|none\n{odd}|2\n"


def test_variables_of_a_block_that_failed_are_known_to_the_rollback(tmp_path):
    runbook = parse(text(inject="HOST=kafka-1\nfalse", rollback=f"echo $HOST > {tmp_path}/seen"))
    with pytest.raises(BlockFailed):
        run_blocks(runbook, "inject", "local", tmp_path / "run")
    run_blocks(runbook, "rollback", "local", tmp_path / "run")
    assert (tmp_path / "seen").read_text() == "kafka-1\n"


@pytest.mark.parametrize(
    "script", ["false\necho on", "false | true\necho on", "echo $UNSET\necho on"]
)
def test_a_block_stops_at_its_first_error(tmp_path, script):
    with pytest.raises(BlockFailed, match=r"kafka.md:\d+ \(inject\): exit"):
        run_blocks(parse(text(inject=script)), "inject", "local", tmp_path)
    assert "on" not in (tmp_path / "inject-1.log").read_text().splitlines()


def test_the_end_of_the_output_is_told(tmp_path):
    with pytest.raises(BlockFailed, match="the reason"):
        run_blocks(parse(text(inject="echo the reason >&2; exit 3")), "inject", "local", tmp_path)


def test_the_stack_and_the_toolkit_are_at_hand(tmp_path):
    script = f'command -v millrace > {tmp_path}/seen; echo "$MILLRACE_STACK" >> {tmp_path}/seen'
    run_blocks(parse(text(inject=script)), "inject", "staging", tmp_path / "run")
    millrace, stack = (tmp_path / "seen").read_text().splitlines()
    assert millrace.endswith("bin/millrace")
    assert stack == "staging"


def timing_out_once(is_true: Callable[[], bool]) -> type[subprocess.Popen[bytes]]:
    """A first block for whose end nobody waits any longer once that is true."""
    longest = iter([blocks.LONGEST_SECONDS])

    class Waited(subprocess.Popen[bytes]):
        def wait(self, timeout: float | None = None) -> int:
            if timeout == blocks.LONGEST_SECONDS and next(longest, None):
                soon(is_true, "the block hangs")
                raise subprocess.TimeoutExpired(self.args, timeout)
            return super().wait(timeout)

    return Waited


def test_a_block_that_hangs_is_ended_and_its_variables_are_kept(tmp_path, monkeypatch):
    begun = tmp_path / "begun"
    monkeypatch.setattr(blocks.subprocess, "Popen", timing_out_once(begun.exists))
    monkeypatch.setattr(blocks, "GRACE_SECONDS", PATIENCE_SECONDS)
    hangs = f"HOST=kafka-1\ntouch {begun}\nsleep 3600"
    runbook = parse(text(inject=hangs, rollback=f"echo $HOST > {tmp_path}/seen"))
    with pytest.raises(BlockFailed, match="took longer than"):
        run_blocks(runbook, "inject", "local", tmp_path / "run")
    run_blocks(runbook, "rollback", "local", tmp_path / "run")
    assert (tmp_path / "seen").read_text() == "kafka-1\n"


def waits_of(block: Block) -> list[str]:
    """What each of a block's waits takes at most; where it says nothing, the command's own."""
    return [within or PATIENCE for within in AWAITS.findall(block.script)]


def test_a_block_outlasts_all_that_it_waits_for():
    waits = {
        f"{book.path.name}:{block.line}": sum(map(parse_duration, waits_of(block)))
        for book in load_runbooks()
        for block in book.blocks
    }
    assert max(waits.values()) > 0
    assert {at: s for at, s in waits.items() if s >= blocks.LONGEST_SECONDS} == {}


@pytest.mark.parametrize("environment", ["local", "dev", "staging"])
def test_a_block_outlasts_a_deployment(environment):
    """Which says itself what it waits for; a block that is ended says only that it was."""
    settings = load_plan(environment).services["job_gateway"].settings["gateway.json"]
    assert settings["deploy_timeout_seconds"] < blocks.LONGEST_SECONDS
