"""The engine's stream of events: one line per change for the operator, errors kept for later."""

import re
from collections.abc import Callable, Iterable
from typing import NamedTuple

from pulumi.automation import EngineEvent, OpType
from pulumi.automation.events import StepEventMetadata

Report = Callable[[str], None]

VERBS = {
    "create": "created",
    "create-replacement": "created",
    "delete": "removed",
    "delete-replaced": "removed",
    "update": "updated",
}
# The engine's colours, and what gRPC puts before an exception of a provider.
NOISE = re.compile(r"<\{%.*?%\}>|Exception calling application: ")


class EventLog:
    """Give it to an operation as `on_event`."""

    def __init__(self, report: Report) -> None:
        self.errors: list[str] = []
        self._report = report

    def __call__(self, event: EngineEvent) -> None:
        if event.res_outputs_event:
            self._finished(event.res_outputs_event.metadata)
        if event.diagnostic_event and event.diagnostic_event.severity == "error":
            self._failed(_plain(event.diagnostic_event.message))

    def _failed(self, message: str) -> None:
        # A program's error is told twice, the second time inside a longer sentence.
        if not any(known in message for known in self.errors):
            self.errors.append(message)

    def _finished(self, step: StepEventMetadata) -> None:
        if step.type.startswith("pulumi:"):
            return  # the engine's own: the stack and its providers
        kind, name = _named(step)
        if verb := VERBS.get(step.op):
            self._report(f"{verb} {kind} {name}")


def _plain(message: str) -> str:
    return NOISE.sub("", message).strip()


# --- what would change ----------------------------------------------------------------------------

INSTANCE_TYPE = "instanceType"
PLANNED = {
    "create": "create",
    "update": "update",
    "replace": "replace",
    "delete": "remove",
}


class Change(NamedTuple):
    """What `up` would do to one resource; ``properties`` are those that differ."""

    what: str
    kind: str
    name: str
    properties: tuple[str, ...]
    urn: str


class Changes(EventLog):
    """Give it to a preview as `on_event`: keeps what would change."""

    def __init__(self, report: Report) -> None:
        super().__init__(report)
        self.planned: list[Change] = []

    def __call__(self, event: EngineEvent) -> None:
        super().__call__(event)
        if event.resource_pre_event:
            step = event.resource_pre_event.metadata
            what = PLANNED.get(OpType(step.op).value)
            if what and not step.type.startswith("pulumi:"):
                differs = tuple(step.diffs or ())
                self.planned.append(Change(what, *_named(step), differs, step.urn))


def stopping(changes: Iterable[Change]) -> list[Change]:
    """Returns the changes that stop a host's machine: to be another one, or of another type (EC2
    User Guide, "Change the instance type")."""
    return [
        change
        for change in changes
        if change.kind == "Instance" and (change.what == "replace" or _has_another_type(change))
    ]


def _has_another_type(change: Change) -> bool:
    return change.what == "update" and INSTANCE_TYPE in change.properties


def _named(step: StepEventMetadata) -> tuple[str, str]:
    return step.type.rsplit(":", 1)[-1], step.urn.rsplit("::", 1)[-1]
