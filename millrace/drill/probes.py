"""What experiments ask: is the cluster in its steady state?"""

import logging

from confluent_kafka import KafkaException

from millrace.lag import connect, traffic_lag
from millrace.paths import stack_name
from millrace.plan import Plan, load_plan
from millrace.status.collect import collect
from millrace.status.verdict import HEALTHY, judge

log = logging.getLogger("chaostoolkit")

# Records that are still to be counted while all is well: what arrives during a few batches.
LARGEST_LAG = 50_000


def cluster_is_healthy() -> bool:
    """Every component is healthy and the traffic job keeps up. A Chaos Toolkit probe."""
    problems = unhealthy(load_plan(stack_name()))
    for problem in problems:
        log.warning(problem)
    return not problems


def unhealthy(plan: Plan) -> list[str]:
    """Why this is not the steady state; empty when it is."""
    status = judge(plan, collect(plan))
    problems = [
        f"{component.name}: {component.state}, {'; '.join(component.problems) or component.seen}"
        for component in status.components
        if component.state != HEALTHY
    ]
    return problems or list(_behind(plan))


def _behind(plan: Plan) -> list[str]:
    try:
        lag = traffic_lag(connect(plan), plan)
    except KafkaException as error:
        return [f"Kafka does not say how far the traffic job is: {error}"]
    return [f"the traffic job is {lag:,} records behind"] if lag > LARGEST_LAG else []
