"""Plans and sizes, as a person reads them and for programs."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from rich.console import Group

from millrace.common.tables import Answer, Column, Row, Table, shown
from millrace.config import Profile
from millrace.cost import Estimate, estimate, load_prices, quantities
from millrace.plan import Plan
from millrace.plan.aws import AwsPlan
from millrace.plan.capacity import TB, TIB, Assumptions, Capacity, Load
from millrace.plan.storage import Store


def plan_view(plan: Plan) -> Answer:
    """Hosts x services x memory with a line per host, how the zones share them, and what a month
    costs; for programs the whole plan besides."""
    rates = _rates(plan)
    cost = cost_view(plan.aws) if plan.aws else None
    hosted = [f"{name}: {', '.join(jobs)}" for name, jobs in plan.applications.items()]
    view = Group(
        _hosts(plan),
        _zones(plan),
        f"Spark on YARN ({', '.join(hosted)}): {plan.applications_memory:,} MiB",
        rates,
        f"plan digest {plan.digest[:16]}",
        *([cost] if cost else []),
    )
    derived = {"digest": plan.digest, "rates": rates.rows} | ({"cost": cost.data} if cost else {})
    return Answer(plan.model_dump(mode="json") | derived, view)


def _hosts(plan: Plan) -> Table:
    columns = (
        *map(Column, ("host", "zone", "address", "services")),
        Column("planned", "planned MiB"),
        Column("memory", "of MiB"),
    )
    rows = [
        {
            "host": host.name,
            "group": host.group,
            "zone": host.zone,
            "address": host.address,
            "services": host.services,
            "planned": plan.planned_memory(host),
            "memory": host.memory,
        }
        for host in plan.hosts
    ]
    title = f"{plan.cluster} ({plan.profile}, {plan.network.subnet})"
    return Table(title, columns, rows, by="group")


def _rates(plan: Plan) -> Table:
    columns = (
        Column("job"),
        Column("events_per_second", "events/s at most", _bound("events_per_second", "no bound")),
        Column("batch_records", "in a batch", _bound("batch_records", "in real time")),
        Column("trigger_seconds", "a batch every", lambda row: f"{row['trigger_seconds']:g} s"),
    )
    return Table("what the jobs' settings allow", columns, [_rate(plan, job) for job in plan.jobs])


def _rate(plan: Plan, job: str) -> Row:
    """None where there is no bound, as in real time."""
    settings = plan.spark.settings
    bounded = not settings.is_real_time(job)
    return {
        "job": job,
        "events_per_second": settings.events_per_second(job) if bounded else None,
        "batch_records": settings.batch_records(job) if bounded else None,
        "trigger_seconds": settings.job(job).trigger_seconds,
    }


def _bound(key: str, without: str) -> Any:
    return lambda row: without if row[key] is None else shown(row[key])


def _zones(plan: Plan) -> Table:
    columns = (*map(Column, ("zone", "hosts")), Column("planned", "planned MiB"))
    rows = []
    for zone in plan.zones:
        hosts = [host for host in plan.hosts if host.zone == zone]
        planned = sum(map(plan.planned_memory, hosts))
        rows.append({"zone": zone, "hosts": [host.name for host in hosts], "planned": planned})
    planned = sum(map(plan.planned_memory, plan.hosts))
    everything = {"zone": "all", "hosts": f"{len(plan.hosts)} hosts", "planned": planned}
    return Table("zones", columns, rows, foot=everything)


def volume(size: float) -> str:
    """Bytes as ``27.2 TB (24.7 TiB)``: the second figure restates the first, rounded, one.

    Below a TB in GB.
    """
    unit, one, binary = ("TB", TB, TIB) if size >= TB else ("GB", TB / 1000, TIB / 1024)
    shown = round(size / one, 1)
    return f"{shown:,.1f} {unit} ({shown * one / binary:,.1f} {unit[0]}iB)"


def capacity_view(
    load: Load,
    capacity: Capacity,
    stores: Mapping[str, Store],
    assumptions: Assumptions,
    most: Mapping[Profile, int],
) -> Answer:
    """``most`` has the events/s that a job takes at most, by profile, the smallest first."""
    peak = load.events_per_second * assumptions["headroom"]
    enough = profile_for(peak, most)
    bounds = ", ".join(f"{rate:,} ({profile})" for profile, rate in most.items())
    needs = [
        ("events on disk", capacity.raw, "B", "rate x bytes x seconds kept x copies"),
        ("ingest", capacity.ingest, "B/s", "mean, one copy"),
        (
            "brokers",
            capacity.brokers,
            None,
            f"{capacity.brokers_for_disk} for the disks, {capacity.brokers_for_network} for the "
            "network at peak, never fewer than 3",
        ),
        (
            "profile",
            enough or "none",
            None,
            f"a job takes {bounds} events/s at most, the peak is {peak:,.0f}: "
            "max_events_per_second",
        ),
        ("partitions", capacity.partitions, None, "peak rate, a multiple of the brokers"),
        *(
            (f"data in {name}", store.bytes, "B", f"{store.copies} copies; see below")
            for name, store in stores.items()
        ),
        *(
            (
                f"disks of {name}",
                store.bytes * store.overhead / assumptions["disk_fill"],
                "B",
                _disks(store, assumptions),
            )
            for name, store in stores.items()
        ),
    ]
    title = (
        f"{load.events_per_second:,.0f} events/s of {load.bytes:,.0f} B, kept "
        f"{load.retention_days:g} days in {load.replication} copies"
    )
    columns = (Column("what"), Column("needed", show=_needed), Column("because"))
    rows = [dict(zip(("what", "needed", "unit", "because"), need, strict=True)) for need in needs]
    return Answer.of(
        needs=Table(title, columns, rows),
        kept=_kept(stores),
        assumptions=_assumptions(assumptions),
    )


def profile_for(peak: float, most: Mapping[Profile, int]) -> Profile | None:
    """The smallest whose jobs take so many events/s; None if none does."""
    return next((profile for profile, rate in most.items() if rate >= peak), None)


def _disks(store: Store, assumptions: Assumptions) -> str:
    full = f"full to {assumptions['disk_fill']:.0%}"
    return full if store.overhead == 1 else f"{full}, {store.overhead:g} times for compaction"


def _kept(stores: Mapping[str, Store]) -> Table:
    columns = (
        *map(Column, ("in", "what")),
        Column("bytes", "one copy", lambda row: volume(row["bytes"])),
        Column("because"),
    )
    rows = [
        {"in": name, "what": kind.what, "bytes": kind.bytes, "because": kind.because}
        for name, store in stores.items()
        for kind in store.kinds
    ]
    return Table("what is kept, by archive and traffic", columns, rows)


def _needed(row: Row) -> str:
    match row["unit"]:
        case "B":
            return volume(row["needed"])
        case "B/s":
            return f"{row['needed'] / 1e6:,.1f} MB/s"
    return shown(row["needed"])


def _assumptions(assumptions: Assumptions) -> Table:
    rows = [
        {"name": name, "value": setting.value, "why": setting.why}
        for name, setting in assumptions.assumptions.items()
    ]
    columns = tuple(map(Column, ("name", "value", "why")))
    return Table("assumptions (configs/capacity.yaml)", columns, rows)


def cost_view(aws: AwsPlan) -> Answer:
    """A month's quantities, and their cost where a price is known."""
    estimated = estimate(quantities(aws), aws.region, load_prices())
    prices = estimated.prices
    columns = (
        Column("what"),
        Column("quantity", show=lambda row: f"{row['quantity']:,.0f}"),
        Column("unit"),
        Column("price", show=_price),
        Column("as_of", show=lambda row: row["as_of"] or ""),
        Column("cost", prices.currency, _cost),
    )
    rows = [
        {
            "what": line.quantity.item,
            "quantity": line.quantity.amount,
            "unit": line.quantity.unit,
            "price": line.price.amount if line.price else None,
            "as_of": line.price.date if line.price else None,
            "cost": line.cost,
        }
        for line in estimated.lines
    ]
    listed = f"list prices of {prices.region} (configs/prices.yaml)"
    found = Answer.of(
        f"{_total(estimated)}: {listed}",
        lines=Table(f"a month in {estimated.region}", columns, rows),
    )
    total = None if estimated.missing else estimated.known
    about = {"region": estimated.region, "currency": prices.currency, "total": total}
    return replace(found, data={**about, **found.data})


def _price(row: Row) -> str:
    return "unknown" if row["price"] is None else f"{row['price']:g}"


def _cost(row: Row) -> str:
    return "" if row["cost"] is None else f"{row['cost']:,.2f}"


def _total(estimated: Estimate) -> str:
    known = f"{estimated.known:,.2f} {estimated.prices.currency}"
    if not (number := len(estimated.missing)):
        return f"total {known}"
    missing = "1 price is missing" if number == 1 else f"{number} prices are missing"
    return f"no total: {missing}, the rest is {known}"
