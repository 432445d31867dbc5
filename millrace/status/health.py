"""Is the cluster in its steady state? What deployments wait for and drills begin and end with."""

import time

from millrace.plan import Plan
from millrace.status.collect import ask_drivers, collect
from millrace.status.verdict import HEALTHY, Component, applications, judge

# A line of the status -> the component that runbooks break.
PARTS = {
    "ZooKeeper": "zookeeper",
    "Kafka controllers": "kafka",
    "Kafka brokers": "kafka",
    "Cassandra": "cassandra",
    "Redis": "redis",
    "HDFS": "hdfs",
    "JournalNodes": "hdfs",
    "DataNodes": "hdfs",
    "Failover controllers": "hdfs",
    "YARN": "yarn",
    "NodeManagers": "yarn",
    "Applications": "spark",
}


def problems(plan: Plan) -> list[str]:
    """Why it is not; empty when it is. What isn't known is a reason, too."""
    return told(ailing(plan))


def ailing(plan: Plan) -> list[Component]:
    """Returns what isn't known to be healthy.

    Fresh, as a figure of before the fault would say that all is well. Drivers are looked at first:
    their return takes longest, and a look at all hosts is work for each of them, at a time when
    others need the cores.
    """
    return _ailing([applications(plan, ask_drivers(plan), time.time())]) or _ailing(
        judge(plan, collect(plan, fresh=True)).components
    )


def unhealthy(plan: Plan) -> set[str]:
    """Returns what isn't known to be whole, in the words of runbooks (their ``component``).

    A backlog is no illness.
    """
    return {
        PARTS[component.name]
        for component in _ailing(judge(plan, collect(plan, fresh=True)).components)
        if component.name in PARTS
    }


def told(components: list[Component]) -> list[str]:
    """A line for each."""
    return [
        f"{component.name}: {component.state}, {'; '.join(_reasons(component)) or component.seen}"
        for component in components
    ]


def _ailing(components: list[Component]) -> list[Component]:
    return [component for component in components if component.state != HEALTHY]


def _reasons(component: Component) -> list[str]:
    return component.problems + component.unanswered
