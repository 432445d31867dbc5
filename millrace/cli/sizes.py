"""What each environment on AWS is sized for, and what a month of it costs: docs/aws.md's table."""

from collections.abc import Iterator

from millrace.config import Environment, environment_names, load_environment
from millrace.cost import Estimate, estimate, load_prices, quantities
from millrace.plan import Plan, load_plan
from millrace.plan.aws import AwsPlan, broker_gibibytes
from millrace.plan.storage import needs


def sizes_table() -> str:
    rows = [
        "| environment | load | brokers' disks | HDFS' disks | Cassandra's disks | a month |",
        "|---|---|---|---|---|---|",
    ]
    for name in environment_names():
        environment = load_environment(name)
        if environment.aws:
            rows.append(f"| {' | '.join(_row(load_plan(name), environment))} |")
    return "\n".join(rows) + "\n"


def _row(plan: Plan, environment: Environment) -> Iterator[str]:
    assert plan.aws
    assert environment.aws
    assert environment.load
    yield f"`{plan.environment}`"
    yield f"{environment.load.events_per_second:,} events/s of {environment.load.bytes} B"
    brokers = len(plan.hosts_of("kafka_broker"))
    disk = environment.aws.disks["kafka_broker"].size
    yield _disks(brokers, disk, broker_gibibytes(plan.topics, brokers))
    reserved = plan.services["datanode"].settings["hdfs-site.xml"]["dfs.datanode.du.reserved"]
    for need in needs(environment, plan.spark.settings, plan.jobs, reserved):
        yield _disks(need.room.hosts, need.room.disk, need.size)
    yield _month(plan.aws)


def _disks(hosts: int, disk: int, needed: int) -> str:
    return f"{hosts} × {disk:,} GiB, {needed:,} needed"


def _month(aws: AwsPlan) -> str:
    estimated = estimate(quantities(aws), aws.region, load_prices())
    known = f"{estimated.known:,.0f} {estimated.prices.currency}"
    return f"{known} without {_missing(estimated)}" if estimated.missing else known


def _missing(estimated: Estimate) -> str:
    return ", ".join(estimated.missing)
