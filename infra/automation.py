"""The engine, driven from the toolkit: the Automation API runs `program` in this process.

Plain `pulumi` commands work on the same state in an environment of `engine_environment`.
"""

import logging
import os
import re
import shutil
import socket
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

from pulumi import automation as auto
from pulumi.automation import OpType
from pulumi.automation.errors import CommandError, ConcurrentUpdateError

from infra import shared
from infra.keys import ensure_passphrase
from infra.orphans import remove_containers, remove_networks_and_volumes
from infra.policy.rules import LOAD_BALANCER
from infra.program import program
from infra.progress import Change, Changes, EventLog, Report
from millrace.common.errors import OperatorError
from millrace.common.paths import REPO, STATE, stack_state
from millrace.config import State
from millrace.plan import load_plan
from millrace.setup.engine import ensure_engine

T = TypeVar("T")

PROJECT = "millrace"  # as Pulumi.yaml has it
POLICIES = REPO / "infra" / "policy"
LOCK = re.compile(r"created by \S+@(?P<host>\S+) \(pid (?P<pid>\d+)\)")

# A failed run's errors come as events. What the SDK's server logs of it besides is a traceback.
logging.getLogger("grpc._server").setLevel(logging.CRITICAL)


@dataclass(frozen=True)
class UpResult:
    changes: dict[str, int]  # operation -> resources; empty when nothing changed
    outputs: dict[str, Any]


def silent(_message: str) -> None:
    """The report of those who don't want one."""


def shared_state(stack: str) -> State | None:
    """Returns where the operators of a stack share its state; None if that is on this machine, or
    wherever the shell says.

    OperatorError for a stack whose account isn't known yet.
    """
    if "PULUMI_BACKEND_URL" in os.environ:
        return None
    aws = load_plan(stack).aws
    if aws and aws.state is None:
        raise OperatorError(
            f"{stack}: configs/aws.yaml names no account",
            "write its number there; infra/aws/state.yaml makes room for its state (docs/aws.md)",
        )
    return aws.state if aws else None


def engine_environment(stack: str, report: Report = silent) -> dict[str, str]:
    """Returns what any `pulumi` needs to work on a stack. A backend that was chosen stays."""
    return _environment(stack, shared_state(stack), report)


def _environment(stack: str, state: State | None, report: Report) -> dict[str, str]:
    """Returns the environment with ``state`` as the backend, if there is one.

    The engine finds programs and plugins by PATH, and the provider process must be able to import
    what the program imported.
    """
    engine = ensure_engine(report)
    path = [str(engine.parent), str(Path(sys.executable).parent), os.environ["PATH"]]
    environment = {
        "PATH": os.pathsep.join(path),
        "PYTHONPATH": str(REPO),
        "PULUMI_PYTHON_CMD": sys.executable,
        "PULUMI_STACK": stack,
        # Nothing here needs a plugin; without this each run may wait for the network first.
        "PULUMI_DISABLE_AUTOMATIC_PLUGIN_ACQUISITION": "true",
        "PULUMI_SKIP_UPDATE_CHECK": "true",
    }
    if state:
        return environment | {"PULUMI_BACKEND_URL": state.backend}
    if "PULUMI_BACKEND_URL" not in os.environ:
        backend = STATE / "pulumi"
        backend.mkdir(parents=True, exist_ok=True)
        environment["PULUMI_BACKEND_URL"] = f"file://{backend}"
    if not {"PULUMI_CONFIG_PASSPHRASE", "PULUMI_CONFIG_PASSPHRASE_FILE"} & os.environ.keys():
        environment["PULUMI_CONFIG_PASSPHRASE_FILE"] = str(ensure_passphrase())
    return environment


def stack(name: str, report: Report = silent, *, project: Path = REPO) -> auto.Stack:
    """A stack, made on first use; ``project`` is the folder of its Pulumi.yaml.

    With a shared state come the files that its operators share.
    """
    state = shared_state(name)

    def declare() -> None:
        program(name)

    options = auto.LocalWorkspaceOptions(
        work_dir=str(project),
        env_vars=_environment(name, state, report),
        pulumi_command=_command(report),
        secrets_provider=state.secrets if state else None,
    )
    try:
        made = auto.create_or_select_stack(name, PROJECT, declare, opts=options)
        if state:
            _join(made, state)
    except CommandError as error:
        raise OperatorError(
            f"{name}: its state can't be opened: {error}",
            "docs/aws.md says how it is made" if state else "",
        ) from error
    return made


def _join(stack: auto.Stack, state: State) -> None:
    """What an operator needs whose machine hasn't seen the stack yet."""
    workspace = stack.workspace
    try:
        workspace.stack_settings(stack.name)
    except FileNotFoundError:
        workspace.save_stack_settings(
            stack.name, auto.StackSettings(secrets_provider=state.secrets)
        )
    shared.fetch(stack_state(stack.name), outputs(stack).get(shared.OUTPUT, {}))


def up(stack: auto.Stack, report: Report = silent, *, only: Sequence[str] = ()) -> UpResult:
    """Makes what the plan says true: what drifted or died is found first and put back.

    ``only``: URNs of the resources, and what depends on them; else all.
    """
    log = EventLog(report)
    result = _run(
        stack,
        log,
        lambda: stack.up(
            refresh=True,
            target=[*only] or None,
            target_dependents=True if only else None,
            on_event=log,
        ),
    )
    outputs = {key: output.value for key, output in result.outputs.items()}
    if shared.OUTPUT in outputs:
        shared.agree(stack_state(stack.name), outputs[shared.OUTPUT])
    return UpResult(_changes(result.summary.resource_changes), outputs)


def preview(
    stack: auto.Stack, report: Report = silent, *, packs: Sequence[Path] = ()
) -> dict[str, int]:
    """Returns what `up` would do: operation -> resources. Raises OperatorError if a policy pack
    forbids it."""
    return _changes(_preview(stack, EventLog(report), packs).change_summary)


def planned(
    stack: auto.Stack, report: Report = silent, *, packs: Sequence[Path] = ()
) -> list[Change]:
    """Returns what `preview` does, resource by resource."""
    log = Changes(report)
    _preview(stack, log, packs)
    return log.planned


def _preview(stack: auto.Stack, log: EventLog, packs: Sequence[Path]) -> auto.PreviewResult:
    folders = [str(pack) for pack in packs]
    return _run(stack, log, lambda: stack.preview(refresh=True, policy_packs=folders, on_event=log))


def refresh(stack: auto.Stack, report: Report = silent) -> dict[str, int]:
    """Reads what is really there into the state: operation -> resources."""
    log = EventLog(report)
    result = _run(stack, log, lambda: stack.refresh(on_event=log))
    return _changes(result.summary.resource_changes)


def destroy(
    stack: auto.Stack, *, purge: bool, provider: str = "docker", report: Report = silent
) -> None:
    """Removes what `up` made. Data volumes stay for the next `up`, unless `purge` is asked for."""
    log = EventLog(report)
    local = provider == "docker"
    if not local:
        _open_protected(stack, log)
    if not purge:
        _run(stack, log, lambda: stack.destroy(exclude_protected=True, on_event=log))
        return
    if local:
        # Data goes anyway, so there is no point in waiting for 19 orderly shutdowns.
        remove_containers(stack.name)
    _run(stack, log, lambda: _pulumi(stack, "state", "unprotect", "--all", "--yes"))
    _run(stack, log, lambda: stack.destroy(on_event=log))
    if local:
        remove_networks_and_volumes(stack.name)
    stack.workspace.remove_stack(stack.name)
    shutil.rmtree(stack_state(stack.name))


def _open_protected(stack: auto.Stack, log: EventLog) -> None:
    """AWS itself refuses to remove a load balancer that is protected: nobody does so by hand."""
    resources = (stack.export_stack().deployment or {}).get("resources", [])
    urns = [resource["urn"] for resource in resources if resource["type"] == LOAD_BALANCER]
    if not urns:
        return
    stack.set_config("leaving", auto.ConfigValue("true"))
    try:
        _run(stack, log, lambda: stack.up(target=urns, on_event=log))
    finally:
        stack.remove_config("leaving")


def outputs(stack: auto.Stack) -> dict[str, Any]:
    """Returns what the last `up` exported; empty before the first one."""
    return {key: output.value for key, output in stack.outputs().items()}


def _command(report: Report) -> auto.PulumiCommand:
    engine = ensure_engine(report)
    if shutil.which("pulumi"):
        return auto.PulumiCommand()
    return auto.PulumiCommand(root=str(engine.parent.parent))


def _pulumi(stack: auto.Stack, *args: str) -> None:
    """A command that the Automation API has no method for."""
    workspace = stack.workspace
    workspace.pulumi_command.run(
        [*args, "--stack", stack.name], workspace.work_dir, workspace.env_vars
    )


def _run(stack: auto.Stack, log: EventLog, operation: Callable[[], T]) -> T:
    """Runs an engine operation; its failure is told in the engine's own error messages."""
    try:
        return _unlocked(stack, operation)
    except CommandError as error:
        raise OperatorError(
            "\n".join(["the Pulumi engine failed:", *(log.errors or [str(error)])]),
            "fix what it says and run the same command again: it goes on where it stopped",
        ) from error


def _unlocked(stack: auto.Stack, operation: Callable[[], T]) -> T:
    """Tries again when the lock in the way belongs to a process that is gone."""
    try:
        return operation()
    except ConcurrentUpdateError as error:
        if not _holder_is_gone(str(error)):
            raise OperatorError(
                f"another Pulumi process is at work on stack {stack.name}",
                "wait for it; if there is none, run `pulumi cancel`",
            ) from error
        stack.cancel()
        return operation()


def _holder_is_gone(message: str) -> bool:
    holder = LOCK.search(message)
    if not holder or holder["host"] != socket.gethostname():
        return False
    return not Path("/proc", holder["pid"]).exists()


def _changes(summary: Mapping[OpType, int] | None) -> dict[str, int]:
    return {OpType(op).value: count for op, count in (summary or {}).items() if op != OpType.SAME}
