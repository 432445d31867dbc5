"""Operations on a stack: check the machine, make the hosts, converge the services, remove all."""

import shutil
import socket
import subprocess
from collections.abc import Iterator

from rich.console import Console

from millrace.cli.playbook import run_playbook
from millrace.common.errors import OperatorError
from millrace.plan import Plan, load_plan
from millrace.preflight import observe, problems

SSH_PORT = 22
ANSWER_SECONDS = 5


def check_machine(plan: Plan, console: Console) -> None:
    """Refuses, with numbers, what this machine can't hold; nothing has been made by then."""
    if plan.provider != "docker":
        _check_from_afar(plan, console)
        return
    machine = observe(plan)
    if found := problems(plan, machine):
        raise OperatorError("\n".join(found), "nothing was created or changed")
    console.print(
        f"preflight: {machine.memory_available:,} MiB of memory and "
        f"{machine.disk_available:,} MiB of disk are enough for {plan.cluster}"
    )


def _check_from_afar(plan: Plan, console: Console) -> None:
    """The hosts are elsewhere: can this machine make and enter them?"""
    found = list(_missing_tools() if plan.aws else _unreachable(plan))
    if found:
        raise OperatorError("\n".join(found), "nothing was created or changed")
    console.print(f"preflight: this machine can make and enter the hosts of {plan.cluster}")


def _missing_tools() -> Iterator[str]:
    tools = ("aws", "session-manager-plugin")
    missing = [tool for tool in tools if not shutil.which(tool)]
    for tool in missing:
        yield f"{tool} is missing: hosts on AWS are entered by it (docs/aws.md)"
    if "aws" not in missing:
        asked = subprocess.run(
            ["aws", "sts", "get-caller-identity"], capture_output=True, text=True
        )
        if asked.returncode:
            yield f"AWS knows no credentials of this shell: {asked.stderr.strip()}"


def _unreachable(plan: Plan) -> Iterator[str]:
    for host in plan.hosts:
        try:
            socket.create_connection((host.address, SSH_PORT), ANSWER_SECONDS).close()
        except OSError as error:
            yield f"{host.name} doesn't answer at {host.address}:{SSH_PORT}: {error}"


def make_hosts(name: str, console: Console) -> None:
    """``pulumi up``: makes the hosts, or puts back what drifted."""
    from infra import automation

    plan = load_plan(name)
    check_machine(plan, console)
    stack = automation.stack(name, console.print)
    if plan.aws:
        # What is refused, by a policy or as it would remove data, is refused before all else.
        automation.preview(stack, packs=[automation.POLICIES])
    result = automation.up(stack, console.print)
    changes = ", ".join(f"{count} {kind}" for kind, count in sorted(result.changes.items()))
    console.print(f"pulumi: {changes or 'no changes'}; {len(plan.hosts)} hosts")


def follow_plan(name: str, console: Console) -> None:
    """Have the stack know today's configs/, which playbooks read from it.

    Only if they have changed since the last `up`: otherwise a deployment needn't ask Pulumi.
    """
    from infra import automation

    known = automation.outputs(automation.stack(name)).get("plan_digest")
    if known is None:
        raise OperatorError(f"stack {name} has no hosts yet", f"make up STACK={name}")
    if known != load_plan(name).digest:
        console.print("configs/ has changed: the hosts follow first")
        make_hosts(name, console)


def deploy_jobs(name: str, console: Console, release: str = "") -> None:
    """The jobs of this checkout, by hand-over where they run already."""
    follow_plan(name, console)
    arguments = ["-e", f"job_gateway_release={release}"]
    run_playbook(name, "deploy-jobs.yml", arguments, console)


def remove_hosts(name: str, console: Console, *, purge: bool) -> None:
    """``pulumi destroy``: hosts and network go; data volumes only when ``purge``."""
    from infra import automation

    stack = automation.stack(name, console.print)
    provider = load_plan(name).provider
    automation.destroy(stack, purge=purge, provider=provider, report=console.print)
    console.print(f"{name}: removed{'' if purge else '; data volumes stay (PURGE=1 removes them)'}")
