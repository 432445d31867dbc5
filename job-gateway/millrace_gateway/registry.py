"""What has to outlive a gateway, in ZooKeeper:

GATEWAY_LOCK                         its holder acts, the others stand by
APPLICATIONS/APPLICATION/intent      what was deployed
                        /desired     what the drivers were told; they poll it
                        /submission  the last spark-submit
                        /status      what the gateway makes of it, for operators
                        /drivers     what each living driver says of itself
JOBS/JOB/epoch                       the highest fencing epoch that was given to a driver
        /contract                    what the job's checkpoint can't change
        /disabled                    there while an operator wants the job not to run
UPKEEP                               what the last upkeep came to
      /lock                          its holder does it

Where these four are, names.yaml says.
"""

import json
from dataclasses import asdict
from typing import Any, TypeVar

from kazoo.client import KazooClient
from kazoo.exceptions import NoNodeError
from kazoo.recipe.lock import Lock

from millrace_gateway.decide import Intent, Order, Submission
from millrace_gateway.upkeep import Record
from millrace_shared.driver_record import DriverRecord
from millrace_shared.names import ZookeeperNames

RecordT = TypeVar("RecordT", Intent, Order, Submission)


class LockLost(Exception):
    """The lock was lost; another gateway may be acting already."""


class Registry:
    """Reads what is in ZooKeeper, for whoever asks."""

    def __init__(self, client: KazooClient, znodes: ZookeeperNames) -> None:
        self.client = client
        self._znodes = znodes

    def applications(self) -> list[str]:
        try:
            return sorted(self.client.retry(self.client.get_children, self._znodes.applications))
        except NoNodeError:
            return []

    def intent(self, application: str) -> Intent | None:
        return self._record(application, "intent", Intent)

    def order(self, application: str) -> Order | None:
        return self._record(application, "desired", Order)

    def submission(self, application: str) -> Submission | None:
        return self._record(application, "submission", Submission)

    def status(self, application: str) -> dict[str, Any]:
        return self._read(application, "status") or {}

    def drivers(self, application: str) -> list[DriverRecord]:
        """The living drivers. Raises Misconfigured for one whose record can't be read."""
        path = self._path(application, "drivers")
        try:
            names = self.client.retry(self.client.get_children, path)
        except NoNodeError:
            return []
        found = (self._read(application, f"drivers/{name}") for name in names)
        return [DriverRecord.read(driver) for driver in found if driver]

    def contract(self, job: str) -> dict[str, Any] | None:
        """What the job's checkpoint can't change, as the last driver that led it wrote."""
        return self._content(f"{self._znodes.jobs}/{job}/contract")

    def epoch(self, job: str) -> int:
        """The highest that was given out; 0 when none was."""
        try:
            content, _ = self.client.retry(self.client.get, f"{self._znodes.jobs}/{job}/epoch")
        except NoNodeError:
            return 0
        return int(content or 0)

    def is_disabled(self, job: str) -> bool:
        path = f"{self._znodes.jobs}/{job}/disabled"
        return self.client.retry(self.client.exists, path) is not None

    def upkeep(self) -> Record | None:
        content = self._content(self._znodes.upkeep)
        return Record(**content) if content else None

    def put_upkeep(self, record: Record) -> None:
        self.client.retry(self.client.ensure_path, self._znodes.upkeep)
        self.client.retry(self.client.set, self._znodes.upkeep, _bytes(asdict(record)))

    def intend(self, application: str, intent: Intent) -> None:
        """Written from outside: the gateways act on it."""
        path = self._path(application, "intent")
        self.client.retry(self.client.ensure_path, path)
        self.client.retry(self.client.set, path, _bytes(asdict(intent)))

    def _path(self, application: str, name: str) -> str:
        return f"{self._znodes.applications}/{application}/{name}"

    def _record(self, application: str, name: str, kind: type[RecordT]) -> RecordT | None:
        content = self._read(application, name)
        return kind(**content) if content else None

    def _read(self, application: str, name: str) -> dict[str, Any] | None:
        return self._content(self._path(application, name))

    def _content(self, path: str) -> dict[str, Any] | None:
        try:
            content, _ = self.client.retry(self.client.get, path)
        except NoNodeError:
            return None
        return json.loads(content) if content else None


class LeaderRegistry(Registry):
    """Writes for the gateway that holds the lock.

    Each is a transaction that succeeds only while the lock's own node is there. So a gateway that
    was frozen, lost its session and wakes up can't write; and whatever it does outside of
    ZooKeeper, it writes down first.
    """

    def __init__(self, client: KazooClient, znodes: ZookeeperNames, lock: Lock) -> None:
        super().__init__(client, znodes)
        self._lock = lock

    def holds_lock(self) -> bool:
        return self.client.retry(self.client.exists, self._lock_node) is not None

    def put_order(self, application: str, order: Order) -> None:
        self._write(application, "desired", asdict(order))

    def put_submission(self, application: str, submission: Submission) -> None:
        self._write(application, "submission", asdict(submission))

    def put_status(self, application: str, status: dict[str, Any]) -> None:
        self._write(application, "status", status)

    def _write(self, application: str, name: str, content: dict[str, Any]) -> None:
        path = self._path(application, name)
        self.client.retry(self.client.ensure_path, path)
        self.client.retry(self._commit, path, _bytes(content))

    def _commit(self, path: str, content: bytes) -> None:
        transaction = self.client.transaction()
        transaction.check(self._lock_node, version=0)
        transaction.set_data(path, content)
        failed = [result for result in transaction.commit() if isinstance(result, Exception)]
        if failed:
            raise LockLost(f"{path}: {failed[0]!r}")

    @property
    def _lock_node(self) -> str:
        return f"{self._lock.path}/{self._lock.node}"


def _bytes(content: dict[str, Any]) -> bytes:
    return json.dumps(content).encode()
