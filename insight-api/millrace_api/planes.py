"""The state of the cluster's planes as the API can see them."""

import asyncio
from collections.abc import Awaitable, Callable, Iterable, Set
from dataclasses import dataclass
from datetime import UTC, datetime

from millrace_api.live import Feed, FeedUnavailable
from millrace_api.models import Plane, State
from millrace_api.settings import Endpoint
from millrace_api.store import Store, StoreUnavailable

CONNECT_SECONDS = 0.5
STALE_SECONDS = 30.0  # far longer than a batch takes
INTENT_SECONDS = 0.5  # to hear which jobs are to run; a status mustn't wait for it


@dataclass(frozen=True)
class IntendedJobs:
    """The names of those that are deployed, as far as that is known, and of the disabled ones."""

    deployed: Set[str] = frozenset()
    disabled: Set[str] = frozenset()

    def lacks(self, job: str) -> bool:
        """Whether it was deployed once and is no more."""
        return bool(self.deployed) and job not in self.deployed


AskIntendedJobs = Callable[[], Awaitable[IntendedJobs]]


async def planes(
    kafka: list[Endpoint], store: Store, feed: Feed, ask_intended: AskIntendedJobs
) -> list[Plane]:
    """All planes, checked at the same time."""
    checks = _ingest(kafka), _process(store, ask_intended), _store(store), _cache(feed)
    return list(await asyncio.gather(*checks))


async def _ingest(brokers: list[Endpoint]) -> Plane:
    answers = await asyncio.gather(*(_accepts(broker) for broker in brokers))
    return Plane(
        name="ingest",
        system="Kafka",
        state=_share(sum(answers), len(brokers)),
        detail=f"{sum(answers)} of {len(brokers)} brokers accept connections",
    )


async def _process(store: Store, ask_intended: AskIntendedJobs) -> Plane:
    def plane(state: State, detail: str) -> Plane:
        return Plane(name="process", system="Spark", state=state, detail=detail)

    try:
        jobs = await store.progress()
    except StoreUnavailable:
        return plane("down", "unknown while the store is away")
    now = datetime.now(UTC)
    old = {job.job for job in jobs if (now - job.updated).total_seconds() > STALE_SECONDS}
    # Asked only when a job is old: otherwise it makes no difference.
    intended = await _in_time(ask_intended) if old else IntendedJobs()
    names = [job.job for job in jobs if not (job.job in old and intended.lacks(job.job))]
    if not names:
        return plane("down", "no job has committed a batch yet")
    disabled = old & intended.disabled
    wanted = [job for job in names if job not in disabled]
    aside = [f"{_all_of(sorted(disabled))} disabled"] if disabled else []
    if stale := [job for job in wanted if job in old]:
        state = _share(len(wanted) - len(stale), len(wanted))
        return plane(state, "; ".join([f"no progress: {', '.join(stale)}", *aside]))
    committing = [f"{_all_of(wanted)} committing batches"] if wanted else []
    return plane("up", "; ".join(committing + aside))


async def _in_time(ask_intended: AskIntendedJobs) -> IntendedJobs:
    try:
        async with asyncio.timeout(INTENT_SECONDS):
            return await ask_intended()
    except TimeoutError:
        return IntendedJobs()


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
