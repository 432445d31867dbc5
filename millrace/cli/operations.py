"""Operations on a stack: check the machine, make the hosts, converge the services, remove all."""

from rich.console import Console

from millrace.cli.playbook import run_playbook
from millrace.common.errors import OperatorError
from millrace.plan import Plan, load_plan
from millrace.providers import provider_of


def check_machine(plan: Plan, console: Console) -> None:
    """Refuses, with numbers, what this machine can't hold; nothing has been made by then."""
    console.print(f"preflight: {provider_of(plan).check_machine(plan)}")


def make_hosts(name: str, console: Console) -> None:
    """``pulumi up``: makes the hosts, or puts back what drifted."""
    from infra import automation

    plan = load_plan(name)
    check_machine(plan, console)
    stack = automation.stack(name, console.print)
    if provider_of(plan).PREVIEWS:
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
