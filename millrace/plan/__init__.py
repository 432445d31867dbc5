"""The planner. Each of these imports only what stands before it:

capacity.py      what Kafka needs for a load
parts.py         what a plan consists of: hosts, services, topics
edges.py         who talks to whom
aws.py           a plan's part for AWS
spark.py         the jobs' settings
streams.py       streams under a profile
tables.py        lookup tables under a profile
storage.py       what HDFS and Cassandra keep, held against their disks
model.py         the plan, and what can be asked of it
reachability.py  what commands and playbooks talk to, held against the plan
addresses.py     where hosts are
availability.py  what can't be highly available, and why
receivers.py     who is told of alerts
make.py          from configs/ to a plan
"""

from millrace.plan.make import SHARED_COMPONENTS, load_plan, make_plan
from millrace.plan.model import Plan
from millrace.plan.parts import (
    CONFIG_ROOT,
    CONTROLLER_ID_BASE,
    DATA_ROOT,
    LOGS_ROOT,
    Endpoint,
    Endpoints,
    Host,
    MachinesPlan,
    NetworkPlan,
    Service,
    TopicPlan,
    Volume,
)

__all__ = [
    "CONFIG_ROOT",
    "CONTROLLER_ID_BASE",
    "DATA_ROOT",
    "LOGS_ROOT",
    "SHARED_COMPONENTS",
    "Endpoint",
    "Endpoints",
    "Host",
    "MachinesPlan",
    "NetworkPlan",
    "Plan",
    "Service",
    "TopicPlan",
    "Volume",
    "load_plan",
    "make_plan",
]
