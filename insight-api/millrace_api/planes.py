"""The state of the cluster's planes as the API can see them."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable
from datetime import UTC, datetime

from millrace_api.live import Feed, FeedUnavailable
from millrace_api.models import Plane, State
from millrace_api.settings import Endpoint
from millrace_api.store import Store, StoreUnavailable

CONNECT_SECONDS = 0.5
STALE_SECONDS = 30.0  # far longer than a batch takes
DISABLED_SECONDS = 0.5  # to hear which jobs are; a status mustn't wait for it

DisabledJobs = Callable[[], Awaitable[set[str]]]


async def planes(
    kafka: list[Endpoint], store: Store, feed: Feed, disabled_jobs: DisabledJobs
) -> list[Plane]:
    """All planes, checked at the same time."""
    checks = _ingest(kafka), _process(store, disabled_jobs), _store(store), _cache(feed)
    return list(await asyncio.gather(*checks))


async def _ingest(brokers: list[Endpoint]) -> Plane:
    answers = await asyncio.gather(*(_accepts(broker) for broker in brokers))
    return Plane(
        name="ingest",
        system="Kafka",
        state=_share(sum(answers), len(brokers)),
        detail=f"{sum(answers)} of {len(brokers)} brokers accept connections",
    )


async def _process(store: Store, disabled_jobs: DisabledJobs) -> Plane:
    def plane(state: State, detail: str) -> Plane:
        return Plane(name="process", system="Spark", state=state, detail=detail)

    try:
        jobs = await store.progress()
    except StoreUnavailable:
        return plane("down", "unknown while the store is away")
    if not jobs:
        return plane("down", "no job has committed a batch yet")
    now = datetime.now(UTC)
    old = {job.job for job in jobs if (now - job.updated).total_seconds() > STALE_SECONDS}
    disabled = old & await _disabled(disabled_jobs) if old else set()
    wanted = [job.job for job in jobs if job.job not in disabled]
    aside = [f"{_all_of(sorted(disabled))} disabled"] if disabled else []
    if stale := [job for job in wanted if job in old]:
        state = _share(len(wanted) - len(stale), len(wanted))
        return plane(state, "; ".join([f"no progress: {', '.join(stale)}", *aside]))
    committing = [f"{_all_of(wanted)} committing batches"] if wanted else []
    return plane("up", "; ".join(committing + aside))


async def _disabled(disabled_jobs: DisabledJobs) -> set[str]:
    """Asked only when a job is old: otherwise it makes no difference."""
    try:
        async with asyncio.timeout(DISABLED_SECONDS):
            return await disabled_jobs()
    except TimeoutError:
        return set()


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


def _all_of(jobs: Iterable[str]) -> str:
    return " and ".join(jobs)


def _share(good: int, total: int) -> State:
    if good == total:
        return "up"
    return "degraded" if good else "down"
