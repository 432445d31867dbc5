"""The state of the cluster's planes as the API can see them."""

import asyncio
from datetime import UTC, datetime

from millrace_api.live import Feed, FeedUnavailable
from millrace_api.models import Plane, State
from millrace_api.settings import Endpoint
from millrace_api.store import Store, StoreUnavailable

CONNECT_SECONDS = 0.5
STALE_SECONDS = 30.0  # far longer than a batch takes


async def planes(kafka: list[Endpoint], store: Store, feed: Feed) -> list[Plane]:
    """All planes, checked at the same time."""
    checks = _ingest(kafka), _process(store), _store(store), _cache(feed)
    return list(await asyncio.gather(*checks))


async def _ingest(brokers: list[Endpoint]) -> Plane:
    answers = await asyncio.gather(*(_accepts(broker) for broker in brokers))
    return Plane(
        name="ingest",
        system="Kafka",
        state=_share(sum(answers), len(brokers)),
        detail=f"{sum(answers)} of {len(brokers)} brokers accept connections",
    )


async def _process(store: Store) -> Plane:
    def plane(state: State, detail: str) -> Plane:
        return Plane(name="process", system="Spark", state=state, detail=detail)

    try:
        jobs = await store.progress()
    except StoreUnavailable:
        return plane("down", "unknown while the store is away")
    if not jobs:
        return plane("down", "no job has committed a batch yet")
    now = datetime.now(UTC)
    stale = [job.job for job in jobs if (now - job.updated).total_seconds() > STALE_SECONDS]
    if stale:
        return plane(_share(len(jobs) - len(stale), len(jobs)), f"no progress: {', '.join(stale)}")
    return plane("up", f"{' and '.join(job.job for job in jobs)} committing batches")


async def _store(store: Store) -> Plane:
    def plane(state: State, detail: str) -> Plane:
        return Plane(name="store", system="Cassandra", state=state, detail=detail)

    try:
        nodes = await store.health()
    except StoreUnavailable:
        return plane("down", "no quorum answers")
    return plane(_share(nodes.up, nodes.total), f"quorum, {nodes.up} of {nodes.total} nodes up")


async def _cache(feed: Feed) -> Plane:
    def plane(state: State, detail: str) -> Plane:
        return Plane(name="cache", system="Redis", state=state, detail=detail)

    try:
        replicas = await feed.replicas()
    except FeedUnavailable:
        return plane("down", "no master; the live stream polls the store instead")
    if replicas == 0:
        return plane("degraded", "master without a replica")
    return plane("up", f"master with {replicas} replica{'s' if replicas > 1 else ''}")


async def _accepts(endpoint: Endpoint) -> bool:
    host, port = endpoint
    try:
        async with asyncio.timeout(CONNECT_SECONDS):
            _, writer = await asyncio.open_connection(host, port)
    except (OSError, TimeoutError):
        return False
    writer.close()
    return True


def _share(good: int, total: int) -> State:
    if good == total:
        return "up"
    return "degraded" if good else "down"
