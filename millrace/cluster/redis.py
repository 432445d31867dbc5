"""Redis, by way of its Sentinels: they know which host is the master."""

from typing import Any

from redis import Redis, RedisError
from redis.backoff import NoBackoff
from redis.retry import Retry
from redis.sentinel import Sentinel

from millrace.cluster import tunnel
from millrace.plan import Endpoint, Plan

__all__ = ["Master", "RedisError", "master_address"]

TIMEOUT_SECONDS = 4  # a frozen Sentinel accepts the call and never answers


def master_address(plan: Plan) -> str | None:
    """The IP address of the master by the Sentinels' word; None when none of them answers."""
    try:
        address, _ = _sentinel(plan, TIMEOUT_SECONDS).discover_master(plan.names.redis.master)
    except RedisError:
        return None
    return str(address)


class Master:
    """The master that the Sentinels name at this moment; nothing is tried twice."""

    def __init__(self, plan: Plan, seconds: float) -> None:
        self._plan = plan
        self._name = plan.names.redis.master
        self._seconds = seconds
        self._sentinel = _sentinel(plan, seconds)
        self._clients: dict[tuple[str, int], Redis] = {}

    def set(self, key: str, value: str) -> None:
        """Raises RedisError when that master, or a Sentinel, doesn't answer in time."""
        try:
            self._client(self._sentinel.discover_master(self._name)).set(key, value)
        except RedisError:
            # A Sentinel that is cut off with the old master still names it: ask another one next.
            sentinels = self._sentinel.sentinels
            sentinels.append(sentinels.pop(0))
            raise

    def _client(self, address: tuple[str, int]) -> Redis:
        if address not in self._clients:
            host, port = address
            reached_at = tunnel.at(self._plan, Endpoint(host, port))
            self._clients[address] = Redis(*reached_at, **_once(self._seconds))
        return self._clients[address]


def _sentinel(plan: Plan, seconds: float) -> Sentinel:
    sentinels = tunnel.reachable(plan, "redis_sentinel", "client")
    return Sentinel(sentinels, sentinel_kwargs=_once(seconds))


def _once(seconds: float) -> dict[str, Any]:
    retry = Retry(NoBackoff(), 0)
    return {"socket_timeout": seconds, "socket_connect_timeout": seconds, "retry": retry}
