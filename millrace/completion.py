"""What a shell completes: names of the chosen stack's plan, without a question to any host."""

from collections.abc import Callable, Iterable

import typer

from millrace.common.errors import OperatorError
from millrace.common.paths import stack_name
from millrace.plan import Plan, load_plan

Completer = Callable[[typer.Context], list[str]]


def of_plan(names: Callable[[Plan], Iterable[str]]) -> Completer:
    """Completes names of a plan; none of one that is refused, as the command says why."""

    def complete(context: typer.Context) -> list[str]:
        try:
            plan = load_plan(context.find_root().params.get("stack") or stack_name())
        except OperatorError:
            return []
        return list(names(plan))

    return complete


jobs = of_plan(lambda plan: plan.jobs)
streams = of_plan(lambda plan: plan.streams)
tables = of_plan(lambda plan: plan.tables)
services = of_plan(lambda plan: plan.services)
hosts = of_plan(lambda plan: [host.name for host in plan.hosts])
groups = of_plan(lambda plan: {host.group: None for host in plan.hosts})
zones = of_plan(lambda plan: plan.zones)
