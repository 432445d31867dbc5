"""What the plan alone answers: `millrace plan | capacity | alerts | dashboards`."""

from typing import Annotated

import typer

from millrace.common.console import write
from millrace.common.paths import stack_name
from millrace.common.tables import JsonOption, in_json, tell
from millrace.plan import load_plan


def plan(as_json: JsonOption = False) -> None:
    """Show what runs where: hosts x services x memory, per zone."""
    from millrace.cli.views import plan_view

    tell(plan_view(load_plan(stack_name())), as_json)


def capacity(
    events_per_second: Annotated[float, typer.Option(min=1, help="On average over a day.")],
    event_bytes: Annotated[float, typer.Option("--bytes", min=1, help="Bytes of one event.")],
    retention_days: Annotated[
        float | None,
        typer.Option(min=0.01, help="That Kafka keeps them, if not as long as it is set to."),
    ] = None,
    replication: Annotated[int, typer.Option(min=1, help="Copies of all data.")] = 3,
    as_json: JsonOption = False,
) -> None:
    """Size brokers, partitions, HDFS and Cassandra for a load, with what is assumed.

    millrace capacity --events-per-second 300000 --bytes 150
    """
    from millrace.cli.views import capacity_view, profile_for
    from millrace.config import PROFILES, load_component, load_events
    from millrace.config.streams import load_streams
    from millrace.plan.capacity import Load, load_assumptions, size
    from millrace.plan.parts import DAY_MS
    from millrace.plan.spark import settings_of
    from millrace.plan.storage import PROGRAMS, Stored

    spark, assumptions = load_component("spark"), load_assumptions()
    most = spark.settings["common"]["max_events_per_second"]
    bounds = {profile: most.at(profile) for profile in PROFILES}
    profile = profile_for(events_per_second * assumptions["headroom"], bounds) or PROFILES[-1]
    settings = settings_of(spark, profile)
    topic = load_events().topics[load_streams()[settings.common.stream].topic]
    days = retention_days or topic.config["retention.ms"].at(profile) / DAY_MS
    load = Load(events_per_second, event_bytes, days, replication)
    stored = Stored(events_per_second, event_bytes, settings, PROGRAMS, assumptions)
    stores = {
        "HDFS": stored.in_hdfs(replication),
        "Cassandra": stored.in_cassandra(replication),
    }
    tell(capacity_view(load, size(load, assumptions), stores, assumptions, bounds), as_json)


def alerts() -> None:
    """Print the alerts' rules for Prometheus; docs/alerts.md says what they mean."""
    import yaml

    from millrace.alerts import rules
    from millrace.config.alerts import load_alerts

    made = rules(load_plan(stack_name()), load_alerts())
    write(yaml.safe_dump(made, sort_keys=False).rstrip("\n"))


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
    write(in_json(made))
