"""A plan small enough to make, break and remove in seconds, on a subnet of its own."""

import asyncio
from collections.abc import Callable, Iterator

import pytest

from millrace.config import KafkaReplication, Replication, load_names
from millrace.plan import Endpoint, Endpoints, Host, NetworkPlan, Plan, Volume, load_plan

ENVIRONMENT = "infra-test"
LOCAL = load_plan("local")
CLUSTER = f"millrace-{ENVIRONMENT}"


def make_host(index: int, memory: int = 128) -> Host:
    name = f"store-{index}"
    return Host(
        name=name,
        group="store",
        zone="abc"[index - 1],
        index=index,
        address=f"198.18.30.{10 + index}",
        memory=memory,
        services=["store"],
        volumes=[Volume(name=f"{CLUSTER}-{name}-store", path="/var/lib/millrace/store")],
    )


def make_plan(memory: int = 128, hosts: int = 2) -> Plan:
    return Plan(
        extends=None,
        environment=ENVIRONMENT,
        cluster=CLUSTER,
        provider="docker",
        profile="small",
        drills=True,
        zones=["a", "b", "c"],
        names=load_names(),
        network=NetworkPlan(
            subnet="198.18.30.0/24",
            outside={"operator": ["198.18.30.1/32"]},
            way_in="straight",
            gateway="198.18.30.1",
            artifacts=Endpoint("198.18.30.2", 8000),
        ),
        hosts=[make_host(index, memory) for index in range(1, hosts + 1)],
        services={},
        base=LOCAL.base,
        hadoop=LOCAL.hadoop,
        spark=LOCAL.spark,
        topics={},
        limits={},
        streams={},
        tables={},
        replication=Replication(
            kafka=KafkaReplication(factor=3, min_insync=2), cassandra=3, hdfs=3, sentinel_quorum=2
        ),
        applications={},
        job_folders=[],
        receiver={},
        edges=[],
        endpoints=Endpoints(kafka=[Endpoint("store-1", 1), Endpoint("store-2", 1)]),
    )


@pytest.fixture(scope="module", autouse=True)
def _event_loop() -> Iterator[None]:
    """Pulumi's mocks take the thread's loop, and tests of other folders may have closed it: between
    any two files of this folder, which a worker takes as they come."""
    loop = asyncio.new_event_loop()
    asyncio.set_event_loop(loop)
    yield
    loop.close()


@pytest.fixture
def plan() -> Plan:
    return make_plan()


@pytest.fixture
def planned() -> Callable[..., Plan]:
    """Makes the plan with other sizes."""
    return make_plan
