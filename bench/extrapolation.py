"""What an environment's load would take of its cores, by what the bench recorded. Pure.

It is arithmetic, and no measurement: nobody has run the service at such a rate.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import inf

from bench.goals import WHOLE, per_event
from bench.record import Record
from millrace.config import Environment
from millrace.plan import Plan

COST, SUSTAINED = "service-cost-200-pages-2-jobs", "service-search-200-pages-2-jobs"
# Roles of the record that share the workers' cores.
WORKERS = ("executors", "drivers", "hdfs", "yarn")


@dataclass(frozen=True)
class Share:
    """What a part of the service needs of the cores that it has: of each run, and of the plan."""

    what: str
    core_us: Sequence[float]
    has: int
    where: str

    def cores(self, rate: float) -> list[float]:
        """What so many events a second take."""
        return [cost * rate / 1e6 for cost in self.core_us]


def shares(record: Record, environment: Environment, plan: Plan) -> list[Share]:
    runs = [per_event(run, record["settings"]["rate"]) for run in record["result"]["runs"]]
    spark = plan.spark.settings.defaults

    def part(what: str, roles: Sequence[str], has: int, where: str) -> Share:
        return Share(what, [sum(run.get(role, 0.0) for role in roles) for run in runs], has, where)

    def group(name: str) -> tuple[int, str]:
        vcpus = _vcpus(environment, name)
        hosts = environment.groups[name].hosts
        return hosts * vcpus, f"{hosts} hosts of {vcpus} vCPUs"

    total = sum(group(name)[0] for name in environment.groups)
    return [
        part(
            "executors",
            ["executors"],
            spark.executors * spark.executor_cores,
            f"{spark.executors} executors of {spark.executor_cores} cores",
        ),
        part("workers: executors, drivers, HDFS, YARN", WORKERS, *group("worker")),
        part("brokers", ["brokers"], *group("kafka")),
        part("Cassandra", ["cassandra"], *group("cassandra")),
        part(WHOLE, [WHOLE], total, "all hosts"),
    ]


def _vcpus(environment: Environment, group: str) -> int:
    assert environment.aws, "only its instance types have a number of cores"
    return environment.aws.instance_types[environment.groups[group].instance or ""].vcpus


def rows(
    record: Record,
    environment: Environment,
    plan: Plan,
    spread: Callable[[Sequence[float]], str],
) -> list[list[str]]:
    """A row for each part: its cost, cores that the environment's load needs, and those it has."""
    rate = environment.load.events_per_second if environment.load else 0.0
    made = []
    for share in shares(record, environment, plan):
        needs = share.cores(rate)
        times = [share.has / need if need > 0 else inf for need in needs]
        made.append(
            [
                share.what,
                spread(share.core_us),
                spread(needs),
                f"{share.has} ({share.where})",
                spread(times),
            ]
        )
    return made


def by_sustained(record: Record, rate: float) -> str:
    """The same by the rate that the bench's own cores sustained, all hosts and the load on them."""
    cores, sustained = record["machine"]["cores"], record["result"]["sustained_per_second"]
    return (
        f"By another record: {cores} cores sustained {sustained:,.0f} events/s, with all hosts of"
        f" `local` and the load on them. {rate:,.0f} ÷ {sustained:,.0f} × {cores} ="
        f" {rate / sustained * cores:.2f} cores, fewer, because batches grow with the load and an"
        " event then costs less."
    )
