"""What a driver asks ZooKeeper: its fencing epoch, and whether it is to go on."""

import json
import logging
import time

from kazoo.client import KazooClient
from kazoo.exceptions import BadVersionError, KazooException, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError

log = logging.getLogger(__name__)

EPOCHS = "/millrace/jobs"
APPLICATIONS = "/millrace/applications"
CONNECT_SECONDS = 120


class Coordination:
    """One driver's view. Without ZooKeeper it goes on: its epoch fences its writes."""

    def __init__(self, hosts: str, application: str) -> None:
        self._application = application
        self._client = KazooClient(hosts, connection_retry={"max_tries": -1, "max_delay": 5})
        self._client.start(CONNECT_SECONDS)

    def take_epoch(self, job: str) -> int:
        """A number higher than any driver of this job was given before.

        The compare-and-set makes it unique. It starts from the clock (minutes since 1970), to be
        the highest even if ZooKeeper lost its data or was restored from a backup: with a lower
        epoch, Cassandra would silently drop everything that the job writes.
        """
        path = f"{EPOCHS}/{job}/epoch"
        self._client.ensure_path(path)
        while True:
            value, stat = self._client.get(path)
            epoch = max(int(value or 0) + 1, int(time.time()) // 60)
            try:
                self._client.set(path, str(epoch).encode(), version=stat.version)
            except BadVersionError:
                continue
            return epoch

    def is_superseded(self, job: str, epoch: int) -> bool:
        """True when another driver has taken the job over, as after a long pause of this one."""
        value = self._read(f"{EPOCHS}/{job}/epoch")
        return value is not None and int(value) > epoch

    def is_stop_desired(self, version: str) -> bool:
        """True when the gateway wants this version of the application to end."""
        order = json.loads(self._read(f"{APPLICATIONS}/{self._application}/desired") or "{}")
        return order.get("state") == "stopped" and order.get("version") == version

    def close(self) -> None:
        self._client.stop()
        self._client.close()

    def _read(self, path: str) -> bytes | None:
        """A node's value, None when it isn't there or can't be read now."""
        if not self._client.connected:
            return None
        try:
            return self._client.get(path)[0]
        except NoNodeError:
            return None
        except (KazooException, KazooTimeoutError) as error:
            log.warning("ZooKeeper: can't read %s: %s", path, error)
            return None
