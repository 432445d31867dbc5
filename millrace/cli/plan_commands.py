"""What the plan alone answers: `millrace plan | capacity | alerts | dashboards`."""

import json
from typing import Annotated

import typer

from millrace.common.console import Console
from millrace.common.paths import stack_name
from millrace.plan import load_plan

console = Console()


def plan(
    as_json: Annotated[bool, typer.Option("--json", help="The whole plan, for scripts.")] = False,
) -> None:
    """Show what runs where: hosts x services x memory, per zone."""
    from millrace.cli.views import cost_view, plan_view

    planned = load_plan(stack_name())
    if as_json:
        print(planned.model_dump_json(indent=2))
    else:
        console.print(plan_view(planned))
        if planned.aws:
            console.print(cost_view(planned.aws))


def capacity(
    events_per_second: Annotated[float, typer.Option(min=1)],
    event_bytes: Annotated[float, typer.Option("--bytes", min=1, help="Bytes of one event.")],
    retention_days: Annotated[float, typer.Option(min=0.01)],
    replication: Annotated[int, typer.Option(min=1, help="Copies of each event.")] = 3,
) -> None:
    """Size disks, brokers, partitions and Cassandra for a load, assumptions shown."""
    from millrace.cli.views import capacity_view
    from millrace.config import PROFILES, load_component
    from millrace.plan.capacity import Load, load_assumptions, size

    most = load_component("spark").settings["common"]["max_events_per_second"]
    load = Load(events_per_second, event_bytes, retention_days, replication)
    assumptions = load_assumptions()
    bounds = {profile: most.at(profile) for profile in PROFILES}
    console.print(capacity_view(load, size(load, assumptions), assumptions, bounds))


def alerts() -> None:
    """Print the alerts' rules for Prometheus; docs/alerts.md says what they mean."""
    import yaml

    from millrace.alerts import rules
    from millrace.config.alerts import load_alerts

    print(yaml.safe_dump(rules(load_plan(stack_name()), load_alerts()), sort_keys=False), end="")


def dashboards(
    for_page: Annotated[
        bool, typer.Option("--page", help="As the operations page takes them.")
    ] = False,
) -> None:
    """Print the dashboard of configs/panels.yaml, to be imported into a Grafana of yours."""
    from millrace.config.alerts import load_alerts
    from millrace.config.panels import load_panels
    from millrace.panels import dashboard, page

    planned, panels = load_plan(stack_name()), load_panels()
    made = page(planned, panels, load_alerts()) if for_page else dashboard(planned, panels)
    print(json.dumps(made, indent=2))
