"""Plans and sizes as a person reads them."""

from collections.abc import Mapping

from rich.console import Group
from rich.table import Table

from millrace.config import Profile
from millrace.cost import Estimate, estimate, load_prices, quantities
from millrace.plan import Plan
from millrace.plan.aws import AwsPlan
from millrace.plan.capacity import TB, TIB, Assumptions, Capacity, Load


def plan_view(plan: Plan) -> Group:
    """Hosts x services x memory with a line per host, and how the zones share them."""
    hosts = Table(
        title=f"{plan.cluster} ({plan.profile}, {plan.network.subnet})", title_justify="left"
    )
    for column in ("host", "zone", "address", "services"):
        hosts.add_column(column)
    for column in ("planned", "of"):
        hosts.add_column(f"{column} MiB", justify="right")
    group = None
    for host in plan.hosts:
        if group not in (None, host.group):
            hosts.add_section()
        group = host.group
        hosts.add_row(
            host.name,
            host.zone,
            host.address,
            ", ".join(host.services),
            f"{plan.planned_memory(host):,}",
            f"{host.memory:,}",
        )
    return Group(hosts, _zones(plan), _rates(plan), f"plan digest {plan.digest[:16]}")


def _rates(plan: Plan) -> Table:
    table = Table(title="what the jobs' settings allow", title_justify="left")
    table.add_column("job")
    table.add_column("events/s at most", justify="right")
    table.add_column("in a batch", justify="right")
    table.add_column("a batch every", justify="right")
    settings = plan.spark.settings
    for job in plan.jobs:
        seconds = settings.job(job).trigger_seconds
        bounds = f"{settings.events_per_second(job):,}", f"{settings.batch_records(job):,}"
        if settings.is_real_time(job):
            bounds = "no bound", "in real time"
        table.add_row(job, *bounds, f"{seconds:g} s")
    return table


def _zones(plan: Plan) -> Table:
    table = Table(title="zones", title_justify="left")
    table.add_column("zone")
    table.add_column("hosts")
    table.add_column("planned MiB", justify="right")
    for zone in plan.zones:
        hosts = [host for host in plan.hosts if host.zone == zone]
        planned = sum(plan.planned_memory(host) for host in hosts)
        table.add_row(zone, ", ".join(host.name for host in hosts), f"{planned:,}")
    table.add_section()
    total = sum(plan.planned_memory(host) for host in plan.hosts)
    table.add_row("all", f"{len(plan.hosts)} hosts", f"{total:,}")
    hosted = plan.applications.items()
    applications = ", ".join(f"{name}: {', '.join(jobs)}" for name, jobs in hosted)
    table.add_row("", f"Spark on YARN ({applications})", f"{plan.applications_memory:,}")
    return table


def terabytes(size: float) -> str:
    """Bytes as ``27.2 TB (24.7 TiB)``: the second figure restates the first, rounded, one."""
    shown = round(size / TB, 1)
    return f"{shown:,.1f} TB ({shown * TB / TIB:,.1f} TiB)"


def capacity_view(
    load: Load, capacity: Capacity, assumptions: Assumptions, most: Mapping[Profile, int]
) -> Group:
    """``most`` has the events/s that a job takes at most, by profile, the smallest first."""
    table = Table(
        title=f"{load.events_per_second:,.0f} events/s of {load.bytes:,.0f} B, kept "
        f"{load.retention_days:g} days in {load.replication} copies",
        title_justify="left",
    )
    table.add_column("what")
    table.add_column("needed", justify="right")
    table.add_column("because")
    table.add_row("events on disk", terabytes(capacity.raw), "rate x bytes x seconds kept x copies")
    table.add_row("ingest", f"{capacity.ingest / 1e6:,.1f} MB/s", "mean, one copy")
    table.add_row(
        "brokers",
        str(capacity.brokers),
        f"{capacity.brokers_for_disk} for the disks, {capacity.brokers_for_network} for the "
        "network at peak, never fewer than 3",
    )
    peak = load.events_per_second * assumptions["headroom"]
    bounds = ", ".join(f"{rate:,} ({profile})" for profile, rate in most.items())
    table.add_row(
        "profile",
        next((profile for profile, rate in most.items() if rate >= peak), "none"),
        f"a job takes {bounds} events/s at most, the peak is {peak:,.0f}: max_events_per_second",
    )
    table.add_row("partitions", str(capacity.partitions), "peak rate, a multiple of the brokers")
    table.add_row(
        "Cassandra nodes",
        str(capacity.cassandra_nodes),
        f"{terabytes(capacity.cassandra_bytes)} of results at replication 3, compaction included",
    )
    return Group(table, _assumptions(assumptions))


def _assumptions(assumptions: Assumptions) -> Table:
    table = Table(title="assumptions (configs/capacity.yaml)", title_justify="left")
    table.add_column("name")
    table.add_column("value", justify="right")
    table.add_column("why", style="dim")
    for name, setting in assumptions.assumptions.items():
        table.add_row(name, f"{setting.value:,}", setting.why)
    return table


def cost_view(aws: AwsPlan) -> Group:
    """A month's quantities, and their cost where a price is known."""
    estimated = estimate(quantities(aws), aws.region, load_prices())
    prices = estimated.prices
    table = Table(title=f"a month in {estimated.region}", title_justify="left")
    table.add_column("what")
    table.add_column("quantity", justify="right")
    table.add_column("unit")
    table.add_column("price", justify="right")
    table.add_column("as of")
    table.add_column(prices.currency, justify="right")
    for line in estimated.lines:
        price = line.price
        table.add_row(
            line.quantity.item,
            f"{line.quantity.amount:,.0f}",
            line.quantity.unit,
            f"{price.amount:g}" if price else "unknown",
            price.date if price else "",
            f"{line.cost:,.2f}" if line.cost is not None else "",
        )
    listed = f"list prices of {prices.region} (configs/prices.yaml)"
    return Group(table, f"{_total(estimated)}: {listed}")


def _total(estimated: Estimate) -> str:
    known = f"{estimated.known:,.2f} {estimated.prices.currency}"
    if not (number := len(estimated.missing)):
        return f"total {known}"
    missing = "1 price is missing" if number == 1 else f"{number} prices are missing"
    return f"no total: {missing}, the rest is {known}"
