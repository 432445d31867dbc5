"""The live feed: a Redis stream, found through Sentinel."""

from typing import Protocol

from redis.asyncio.retry import Retry
from redis.asyncio.sentinel import Sentinel
from redis.backoff import NoBackoff
from redis.exceptions import RedisError

from millrace_api.settings import Settings

BATCH = 200
CONNECT_SECONDS = 0.5
# A master that hangs is noticed one second after an idle read should have returned.
WAIT_SECONDS = 2.0
ANSWER_SECONDS = 3.0


class FeedUnavailable(Exception):
    """No Redis master answers. Nothing is lost: the store has everything."""


class Feed(Protocol):
    """What the API asks of a feed. Every method may raise ``FeedUnavailable``."""

    async def latest(self) -> str:
        """The id of the newest entry."""

    async def read(self, after: str) -> list[tuple[str, str]]:
        """Ids and JSON of the entries after that id; empty when none come for two seconds."""

    async def since(self, after: str) -> list[tuple[str, str]]:
        """As ``read``, but without waiting for any: the next ``BATCH`` at most."""

    async def replicas(self) -> int:
        """How many replicas the master has."""


class RedisFeed:
    def __init__(self, settings: Settings) -> None:
        self._stream = settings.stream
        fail_at_once = Retry(NoBackoff(), 0)  # the caller has another source, and comes back
        self._sentinel = Sentinel(
            settings.sentinels,
            sentinel_kwargs={
                "socket_timeout": CONNECT_SECONDS,
                "socket_connect_timeout": CONNECT_SECONDS,
                "retry": fail_at_once,
            },
        )
        self._master = self._sentinel.master_for(
            settings.redis_master,
            socket_connect_timeout=CONNECT_SECONDS,
            socket_timeout=ANSWER_SECONDS,
            retry=fail_at_once,
            decode_responses=True,
        )

    async def latest(self) -> str:
        try:
            newest = await self._master.xrevrange(self._stream, count=1)
        except (RedisError, OSError) as error:
            raise FeedUnavailable(str(error)) from error
        return newest[0][0] if newest else "0-0"

    async def read(self, after: str) -> list[tuple[str, str]]:
        try:
            answer = await self._master.xread(
                {self._stream: after}, count=BATCH, block=round(WAIT_SECONDS * 1000)
            )
            return [(entry, fields["json"]) for _, entries in answer for entry, fields in entries]
        except (RedisError, OSError, KeyError) as error:  # KeyError: somebody else's entry
            raise FeedUnavailable(str(error)) from error

    async def since(self, after: str) -> list[tuple[str, str]]:
        try:
            entries = await self._master.xrange(self._stream, min=f"({after}", count=BATCH)
            return [(entry, fields["json"]) for entry, fields in entries]
        except (RedisError, OSError, KeyError) as error:
            raise FeedUnavailable(str(error)) from error

    async def replicas(self) -> int:
        try:
            return int((await self._master.info("replication"))["connected_slaves"])
        except (RedisError, OSError) as error:
            raise FeedUnavailable(str(error)) from error

    async def close(self) -> None:
        await self._master.aclose()
        for sentinel in self._sentinel.sentinels:
            await sentinel.aclose()
