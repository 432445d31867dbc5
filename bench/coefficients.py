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


def archived_share(record: Record) -> float:
    """Of events with random ids, for each byte of them."""
    [run] = [run for run in record["result"]["runs"] if run["ids"] == "random"]
    return float(run["archived_bytes"] / run["value_bytes"])


def state_bytes(record: Record) -> float:
    """Of a row of the sessions' state, at its largest."""
    runs = [run for run in record["result"]["runs"] if run["dimension"] == "hours of sessions"]
    return median(run["state_bytes"] / run["state_rows"] for run in runs)


COEFFICIENTS: Mapping[str, Callable[[Record], float]] = {
    own.__name__: own for own in (partition_mb_per_s, archived_share, state_bytes)
}
