"""What `up` would change in a cloud is shown to somebody, who has to agree."""

import sys
from types import SimpleNamespace

import pytest
import typer

from infra.progress import Change, Changes, stopping
from millrace.cli import operations
from millrace.common.console import Console
from millrace.common.errors import OperatorError
from millrace.plan import load_plan

PLAN = load_plan("dev")
INSTANCE = "aws:ec2/instance:Instance"


def change(what: str, kind: str, name: str, *properties: str) -> Change:
    return Change(what, kind, name, properties, f"urn::stack::{kind}::{name}")


CHANGES = [
    *[change("create", "Volume", f"disk-{number}") for number in range(9)],
    change("update", "Instance", "kafka-1", "instanceType"),
    change("update", "Instance", "kafka-2", "instanceType"),
    change("remove", "Instance", "worker-3"),
]


def shown(changes: list[Change]) -> str:
    console = Console(width=120, record=True, quiet=False, file=open("/dev/null", "w"))  # noqa: SIM115
    console.print(operations.changes_view("dev", changes))
    return console.export_text()


def test_what_ends_something_stands_first_and_what_is_alike_in_one_line():
    lines = [line for line in shown(CHANGES).splitlines() if line.startswith("│")]
    assert [line.split("│")[1].strip() for line in lines] == ["remove", "update", "create"]
    assert "kafka-1, kafka-2" in lines[1]
    assert "instanceType" in lines[1]
    assert "9 × Volume" in lines[2]
    assert "disk-5 and 3 more" in lines[2]


def approve(monkeypatch: pytest.MonkeyPatch, *, terminal: bool, agrees: bool) -> None:
    monkeypatch.setattr(sys, "stdin", SimpleNamespace(isatty=lambda: terminal))
    monkeypatch.setattr(typer, "confirm", lambda *_, **__: agrees)
    operations.approve(PLAN, CHANGES, Console(quiet=True))


def test_who_agrees_gets_it(monkeypatch):
    approve(monkeypatch, terminal=True, agrees=True)


@pytest.mark.parametrize(("terminal", "agrees"), [(True, False), (False, True)])
def test_without_a_word_nothing_is_changed(monkeypatch, terminal, agrees):
    with pytest.raises(OperatorError, match="nothing was created or changed"):
        approve(monkeypatch, terminal=terminal, agrees=agrees)


def event(op: str, kind: str, *diffs: str) -> SimpleNamespace:
    step = SimpleNamespace(op=op, type=kind, urn=f"urn::stack::{kind}::one", diffs=list(diffs))
    pre = SimpleNamespace(metadata=step)
    return SimpleNamespace(resource_pre_event=pre, res_outputs_event=None, diagnostic_event=None)


def test_a_preview_says_what_would_change_and_not_what_stays_or_is_the_engines():
    log = Changes(lambda _: None)
    for one in (
        event("same", "aws:ec2/vpc:Vpc"),
        event("update", INSTANCE, "instanceType"),
        event("create-replacement", INSTANCE),
        event("replace", INSTANCE, "ami"),
        event("delete-replaced", INSTANCE),
        event("create", "pulumi:providers:aws"),
    ):
        log(one)
    assert log.planned == [
        Change("update", "Instance", "one", ("instanceType",), f"urn::stack::{INSTANCE}::one"),
        Change("replace", "Instance", "one", ("ami",), f"urn::stack::{INSTANCE}::one"),
    ]


def test_what_stops_a_machine_is_known():
    moved = change("replace", "Instance", "redis-1", "ami")
    retagged = change("update", "Instance", "redis-2", "tags")
    assert stopping([*CHANGES, moved, retagged]) == [CHANGES[9], CHANGES[10], moved]


def test_machines_change_in_the_plans_order_who_leads_last(monkeypatch):
    monkeypatch.setattr(operations, "leaders", lambda plan: iter(["kafka-1"]))
    changes = [change("update", "Instance", name) for name in ("kafka-2", "kafka-1", "coord-3")]
    assert [one.name for one in operations.in_turn(PLAN, changes)] == [
        "coord-3",
        "kafka-2",
        "kafka-1",
    ]
