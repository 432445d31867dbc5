"""The live stream in Redis, for whoever watches. It never holds up or fails a batch."""

import json
import logging
import queue
import threading
from collections.abc import Sequence
from typing import Any

from redis import RedisError
from redis.backoff import NoBackoff
from redis.retry import Retry
from redis.sentinel import Sentinel

from millrace_jobs.config import Config

log = logging.getLogger(__name__)

# Redis answers within a millisecond or is failing over.
TIMEOUT_SECONDS = 0.5
ENTRIES_KEPT = 1000
BATCHES_WAITING = 4


class LiveStream:
    """Sends on a thread of its own; what doesn't fit into its short queue is dropped.

    The thread begins with the first update: a job that is only rehearsed has none to send.
    """

    def __init__(self, config: Config) -> None:
        at_once = Retry(NoBackoff(), 0)
        timeouts = {"socket_timeout": TIMEOUT_SECONDS, "socket_connect_timeout": TIMEOUT_SECONDS}
        sentinel = Sentinel(config.sentinels, sentinel_kwargs={**timeouts, "retry": at_once})
        names = config.names.redis
        self._stream = names.live_stream
        self._master = sentinel.master_for(names.master, **timeouts, retry=at_once)
        self._waiting: queue.Queue[Sequence[dict[str, Any]]] = queue.Queue(BATCHES_WAITING)
        self._thread: threading.Thread | None = None

    def announce(self, entries: Sequence[dict[str, Any]]) -> None:
        if self._thread is None:
            self._thread = threading.Thread(target=self._run, name="live-stream", daemon=True)
            self._thread.start()
        try:
            self._waiting.put_nowait(entries)
        except queue.Full:
            log.warning("Redis is slow: %d live updates were dropped", len(entries))

    def _run(self) -> None:
        while True:
            entries = self._waiting.get()
            try:
                self._send(entries)
            except (RedisError, OSError) as error:
                log.warning("Redis is away: %d live updates were dropped: %s", len(entries), error)

    def _send(self, entries: Sequence[dict[str, Any]]) -> None:
        with self._master.pipeline(transaction=False) as pipeline:
            # A batch may touch more windows than the stream keeps: send its newest ones only.
            for entry in entries[-ENTRIES_KEPT:]:
                fields = {"json": json.dumps(entry)}
                pipeline.xadd(self._stream, fields, maxlen=ENTRIES_KEPT, approximate=True)
            pipeline.execute()
