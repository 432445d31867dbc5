"""Leadership of an application: a lock in ZooKeeper, and how long it can be relied on.

ZooKeeper ends the session of a driver that it hasn't heard of for the session's time-out, and gives
the lock to the standby. The driver counts the same seconds from the moment before its last question
that was answered, so it stops no later than the other may start (both clocks need only run at the
same pace). What it had under way then is fenced by its epoch, as always.

That is good enough for writes, which are fenced. What fences others isn't: it goes by `verify`.
"""

import logging
import threading
import time
from collections.abc import Callable

from kazoo.client import KazooClient
from kazoo.exceptions import BadVersionError, KazooException, LockTimeout, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError

log = logging.getLogger(__name__)

QUESTIONS_PER_SESSION = 6
PAUSE_SECONDS = 0.02


class LeaseLost(Exception):
    """Another driver leads, or may lead by now."""


class Lease:
    """One driver's claim. ``seconds`` is the session's time-out."""

    def __init__(
        self,
        client: KazooClient,
        path: str,
        name: str,
        seconds: float,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self._client = client
        self._lock = client.Lock(path, name)
        self._seconds = seconds
        self._clock = clock
        self._good_until = float("-inf")
        self._ended = threading.Event()

    def acquire(self, within: float | None = None) -> bool:
        """Returns True once this driver leads, however long that takes.

        Args:
            within: seconds after which it returns False if another driver leads still.
        """
        while True:
            try:
                if self._lock.acquire(timeout=within):
                    break
                if within is not None:
                    return False
            except LockTimeout:
                return False
            except (KazooException, KazooTimeoutError) as error:
                log.warning("standing in line for the lease: %r; again", error)
                time.sleep(self._seconds / QUESTIONS_PER_SESSION)
        self.renew()
        threading.Thread(target=self._keep, name="lease", daemon=True).start()
        return True

    def renew(self) -> None:
        """Ask once whether the lock is still ours."""
        asked = self._clock()
        try:
            exists = self._client.exists_async(self._node).get(timeout=self._seconds)
        except (KazooException, KazooTimeoutError):
            return  # no answer; what was known stays true until it is too old
        if exists:
            self._good_until = asked + self._seconds
        else:
            self._ended.set()

    def confirm(self) -> None:
        """Returns only while the lease surely holds.

        While ZooKeeper is silent nobody knows, so this waits: either ZooKeeper comes back and the
        driver goes on where it was, or another one leads and this raises LeaseLost.
        """
        while not self._ended.is_set():
            if self._clock() < self._good_until:
                return
            time.sleep(PAUSE_SECONDS)
        raise LeaseLost("another driver has taken over")

    def verify(self) -> None:
        """Returns once a majority of ZooKeeper has agreed, since the call, that the lease is ours.

        For what fences another driver, or adds what nothing can take back. `confirm` goes by the
        past, and by one server, which may have lost the others. Waits and raises as `confirm` does.
        """
        self._commit(None)

    def write(self, path: str, value: bytes, version: int) -> bool:
        """Set a node while the lease is ours, in one step. Waits and raises as `verify` does.

        Returns:
            False if the node has another version.
        """
        return self._commit((path, value, version))

    @property
    def is_lost(self) -> bool:
        return self._ended.is_set()

    def release(self) -> None:
        """Hand over: the next in line leads within milliseconds."""
        self._ended.set()
        try:
            self._lock.release()
        except (KazooException, KazooTimeoutError) as error:
            log.warning("releasing the lease: %r; it ends with the session", error)

    @property
    def _node(self) -> str:
        return f"{self._lock.path}/{self._lock.node}"

    def _commit(self, data: tuple[str, bytes, int] | None) -> bool:
        while not self._ended.is_set():
            transaction = self._client.transaction()
            transaction.check(self._node, 0)
            if data:
                transaction.set_data(*data)
            try:
                held, *written = transaction.commit_async().get(timeout=self._seconds)
            except (KazooException, KazooTimeoutError) as error:
                log.warning("asking whether the lease is ours: %r; again", error)
                time.sleep(PAUSE_SECONDS)
                continue
            if isinstance(held, NoNodeError):
                self._ended.set()
            else:
                return not any(isinstance(result, BadVersionError) for result in written)
        raise LeaseLost("another driver has taken over")

    def _keep(self) -> None:
        while not self._ended.wait(self._seconds / QUESTIONS_PER_SESSION):
            self.renew()
