"""What records say of the capacity planner's coefficients, in its units. Pure.

A coefficient of configs/capacity.yaml that is `measured` has a function of its name here.
"""

from collections.abc import Callable, Mapping
from statistics import median

from bench.goals import per_event
from bench.record import Record
from bench.sample import value_bytes


def partition_mb_per_s(record: Record) -> float:
    """Of a core of the executors that does nothing else; B per µs are MB/s."""
    settings = record["settings"]
    costs = [per_event(run, settings["rate"])["executors"] for run in record["result"]["runs"]]
    return value_bytes(settings["pages"]) / median(costs)


COEFFICIENTS: Mapping[str, Callable[[Record], float]] = {"partition_mb_per_s": partition_mb_per_s}
