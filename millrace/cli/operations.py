"""Operations on a stack: check the machine, make the hosts, converge the services, remove all."""

from rich.console import Console

from millrace.cli.playbook import run_playbook
from millrace.common.errors import OperatorError
from millrace.plan import Plan
from millrace.providers import provider_of


def check_machine(plan: Plan, console: Console) -> None:
    """Refuses, with numbers, what this machine can't hold; nothing has been made by then."""
    console.print(f"preflight: {provider_of(plan).check_machine(plan)}")


def make_hosts(plan: Plan, console: Console) -> None:
    """``pulumi up``: makes the hosts, or puts back what drifted."""
    from infra import automation

    check_machine(plan, console)
    stack = automation.stack(plan.environment, console.print)
    if provider_of(plan).PREVIEWS:
        automation.preview(stack, packs=[automation.POLICIES])
    result = automation.up(stack, console.print)
    changes = ", ".join(f"{count} {kind}" for kind, count in sorted(result.changes.items()))
    console.print(f"pulumi: {changes or 'no changes'}; {len(plan.hosts)} hosts")


def follow_plan(plan: Plan, console: Console) -> None:
    """Have the stack know the plan, which playbooks read from it.

    Only if they have changed since the last `up`: otherwise a deployment needn't ask Pulumi.
    """
    from infra import automation

    known = automation.outputs(automation.stack(plan.environment)).get("plan_digest")
    if known is None:
        name = plan.environment
        raise OperatorError(f"stack {name} has no hosts yet", f"make up STACK={name}")
    if known != plan.digest:
        console.print("configs/ has changed: the hosts follow first")
        make_hosts(plan, console)


def deploy_jobs(plan: Plan, console: Console, release: str = "") -> None:
    """The jobs of this checkout, by hand-over where they run already."""
    follow_plan(plan, console)
    arguments = ["-e", f"job_gateway_release={release}"]
    run_playbook(plan.environment, "deploy-jobs.yml", arguments, console)


def remove_hosts(plan: Plan, console: Console, *, purge: bool) -> None:
    """``pulumi destroy``: hosts and network go; data volumes only when ``purge``."""
    from infra import automation

    stack = automation.stack(plan.environment, console.print)
    automation.destroy(stack, purge=purge, provider=plan.provider, report=console.print)
    kept = "" if purge else "; data volumes stay (PURGE=1 removes them)"
    console.print(f"{plan.environment}: removed{kept}")
