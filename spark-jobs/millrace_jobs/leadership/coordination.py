"""What a driver does in ZooKeeper: stand in line, lead, take its fencing epochs, obey orders.

JOBS/JOB/epoch                      the highest epoch that was given out
        /contract                   what the job's checkpoint can't change
        /retry                      an operator's question: count records that were put aside
        /retry/answer               the answer to the last one
        /retry/tries                how many drivers have begun to answer it
        /skip                       offsets that the job is to leave out; an answer, too
        /disabled                   there while an operator wants the job not to run
        /handover                   there from when a driver ended by the job until it goes on
APPLICATIONS/APPLICATION/leader     the lock whose holder leads
                        /drivers    each living driver and what it does, for operators
                        /desired    the gateway's order

Where JOBS and APPLICATIONS are, names.yaml says.
"""

import json
import logging
import os
import threading
import time
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import asdict, dataclass
from typing import Any, Literal

from kazoo.client import KazooClient, KazooState
from kazoo.exceptions import KazooException, NodeExistsError, NoNodeError
from kazoo.handlers.threading import KazooTimeoutError

from millrace_jobs.leadership.identity import Identity
from millrace_jobs.leadership.lease import Lease
from millrace_jobs.leadership.watchdog import Watchdog
from millrace_jobs.leadership.zookeeper_client import FastReconnectHandler
from millrace_shared.driver_record import DriverRecord
from millrace_shared.names import ZookeeperNames

log = logging.getLogger(__name__)

CONNECT_SECONDS = 120
RECONNECT_SECONDS = 0.25  # at most between two attempts: the lease runs meanwhile
ATTEMPTS_PER_SESSION = 5  # one server lost, another tried in vain: a third of the lease is left
ORPHAN_POLL_SECONDS = 0.05

State = Literal["warming", "standby", "leading", "draining"]
Topic = Literal["retry", "skip"]
JobState = Literal["starting", "running", "isolating", "failed", "draining", "disabled"]


@dataclass(frozen=True)
class JobReport:
    """What a leading driver tells of a job. ``failed_since`` is in seconds since 1970."""

    state: JobState
    trouble: str = ""
    failed_since: float | None = None
    runbook: str = ""


class Coordination:
    """One driver's part. ``lease`` says whether it may write."""

    def __init__(
        self,
        hosts: str,
        znodes: ZookeeperNames,
        application: str,
        identity: Identity,
        lease_seconds: float,
    ) -> None:
        self._path = f"{znodes.applications}/{application}"
        self._jobs = znodes.jobs
        self._identity = identity
        self._state: State = "warming"
        self._since = time.time()
        self._rehearsed_at: float | None = None
        self._reports: Mapping[str, JobReport] = {}
        self._behind_since: Mapping[str, float] = {}
        self._announcing = threading.Lock()
        self._guard: Watchdog | None = None
        self._client = KazooClient(
            hosts,
            timeout=lease_seconds,
            handler=FastReconnectHandler(lease_seconds / ATTEMPTS_PER_SESSION),
            connection_retry={"max_tries": -1, "delay": 0.05, "max_delay": RECONNECT_SECONDS},
            command_retry={"max_tries": -1, "delay": 0.05, "max_delay": RECONNECT_SECONDS},
        )
        self._client.start(CONNECT_SECONDS)
        self.lease = Lease(self._client, f"{self._path}/leader", identity.name, lease_seconds)

    # -- Who is there

    def others(self) -> list[DriverRecord]:
        """What the application's other drivers say of themselves."""
        drivers = f"{self._path}/drivers"
        self._client.retry(self._client.ensure_path, drivers)
        names = self._client.retry(self._client.get_children, drivers)
        told = (self._read(f"{drivers}/{name}") for name in names if name != self._identity.name)
        return [DriverRecord.parse(driver) for driver in told if driver]

    def is_leader_behind(self) -> bool:
        """Whether another driver leads, and says that results are behind. False while ZooKeeper
        doesn't say: it isn't worth a wait."""
        if not self._client.connected:
            return False
        try:
            return any(one.state == "leading" and one.behind_since for one in self.others())
        except (KazooException, KazooTimeoutError) as error:
            log.warning("ZooKeeper: is the leader behind? %r", error)
            return False

    def announce(self, state: State) -> None:
        """Say what this driver does. The node lives as long as its session, or is made again."""
        with self._announcing:  # or what is written last needn't be what is true
            self._announce(state)

    def announce_standby(self) -> None:
        """Tell that this driver is warm, unless it leads by now. Not worth a failure."""
        with self._announcing:
            if self._state != "warming":
                return
            self._state, self._since = "standby", time.time()
        self._announce_again()

    def announce_rehearsal(self) -> None:
        """Tell that this standby has just rehearsed. Not worth a failure."""
        self._rehearsed_at = time.time()
        self._announce_again()

    def announce_jobs(
        self, reports: Mapping[str, JobReport], behind_since: Mapping[str, float]
    ) -> None:
        """Tell what the leading driver's jobs do, why they don't, and which are behind, if that has
        changed.

        Not worth a failure.
        """
        if (reports, behind_since) != (self._reports, self._behind_since):
            self._reports, self._behind_since = dict(reports), dict(behind_since)
            self._announce_again()

    def _announce(self, state: State) -> None:
        if state != self._state:
            self._state, self._since = state, time.time()
        self._client.ensure_path(f"{self._path}/drivers")
        node = f"{self._path}/drivers/{self._identity.name}"
        reports = self._reports
        record = DriverRecord(
            **asdict(self._identity),
            state=self._state,
            since=self._since,
            standing_by_since=self._since if self._state == "standby" else None,
            rehearsed_at=self._rehearsed_at,
            jobs={job: report.state for job, report in reports.items()},
            troubles={job: report.trouble for job, report in reports.items() if report.trouble},
            failed_since={
                job: report.failed_since
                for job, report in reports.items()
                if report.failed_since is not None
            },
            runbooks={job: report.runbook for job, report in reports.items() if report.runbook},
            behind_since=dict(self._behind_since),
        )
        value = record.to_json().encode()
        try:
            self._client.create(node, value, ephemeral=True)
        except NodeExistsError:
            self._client.set(node, value)

    def keep_announced(self) -> None:
        """Announce again whenever a new session has begun; a standby outlives its sessions."""

        def on_change(state: str) -> None:
            if state == KazooState.CONNECTED:
                self._client.handler.spawn(self._announce_again)

        self._client.add_listener(on_change)

    def _announce_again(self) -> None:
        try:
            with self._announcing:
                self._announce(self._state)
        except (KazooException, KazooTimeoutError) as error:
            log.warning("announcing: %r", error)

    # -- Leading

    def take_epoch(self, job: str, above: int) -> int:
        """A number higher than any driver of this job was given before; raises LeaseLost.

        The compare-and-set makes it unique, and takes place only while this driver leads. Should
        ZooKeeper lose its data, or be restored from a backup, it is the highest all the same: it is
        ``above`` the epoch that wrote last, and at least the clock's minutes since 1970. With a
        lower epoch, Cassandra would silently drop everything that the job writes.
        """
        path = f"{self._jobs}/{job}/epoch"
        self._client.retry(self._client.ensure_path, path)
        while True:
            value, stat = self._client.retry(self._client.get, path)
            epoch = max(int(value or 0) + 1, above + 1, int(time.time()) // 60)
            if self.lease.write(path, str(epoch).encode(), stat.version):
                return epoch

    def put_contract(self, job: str, contract: dict[str, Any]) -> None:
        """What later versions must keep to, for the gateway to check before it deploys one.

        Fields that a version leaves out stay reserved: their columns are there for good.
        """
        path, kept = f"{self._jobs}/{job}/contract", self._contract(job)
        if kept.get("checkpoint") == contract["checkpoint"]:
            contract = {
                name: kept.get(name, {}) | value if isinstance(value, dict) else value
                for name, value in contract.items()
            }
        self._client.retry(self._client.ensure_path, path)
        self._client.retry(self._client.set, path, json.dumps(contract).encode())

    def kept_checkpoint(self, job: str) -> str | None:
        """The name of the checkpoint's folder that the job's last driver had."""
        checkpoint: str | None = self._contract(job).get("checkpoint")
        return checkpoint

    def _contract(self, job: str) -> dict[str, Any]:
        kept = self._client.retry(self._get, f"{self._jobs}/{job}/contract")
        return dict(json.loads(kept or "{}"))

    def _get(self, path: str) -> bytes | None:
        try:
            value: bytes = self._client.get(path)[0]
        except NoNodeError:
            return None
        return value

    def question(self, job: str, about: Topic) -> dict[str, Any] | None:
        """What an operator asks, with its id; None if it is answered.

        It stays until a driver has answered: the next one does if this one ends meanwhile, see
        `count_try`.
        """
        path = f"{self._jobs}/{job}/{about}"
        question = json.loads(self._read(path) or "{}")
        answer = json.loads(self._read(f"{path}/answer") or "{}") if question else {}
        return question if question and answer.get("id") != question["id"] else None

    def answer(self, job: str, about: Topic, answer: dict[str, Any]) -> None:
        path = f"{self._jobs}/{job}/{about}/answer"
        self._client.retry(self._client.ensure_path, path)
        self._client.retry(self._client.set, path, json.dumps(answer).encode())

    def count_try(self, job: str, about: Topic, id: str) -> int:
        """How often a driver has taken up this question, this time included."""
        path = f"{self._jobs}/{job}/{about}/tries"
        kept = json.loads(self._client.retry(self._get, path) or "{}")
        number = 1 + (kept["number"] if kept.get("id") == id else 0)
        self._client.retry(self._client.ensure_path, path)
        value = json.dumps({"id": id, "number": number}).encode()
        self._client.retry(self._client.set, path, value)
        return int(number)

    def is_stop_desired(self, version: str) -> bool:
        """True when the gateway wants this version of the application to end."""
        order = json.loads(self._read(f"{self._path}/desired") or "{}")
        return bool(order.get("state") == "stopped" and order.get("version") == version)

    def is_disabled(self, job: str) -> bool | None:
        """True while an operator wants the job not to run; None while ZooKeeper doesn't say."""
        if not self._client.connected:
            return None
        try:
            return self._client.exists(f"{self._jobs}/{job}/disabled") is not None
        except (KazooException, KazooTimeoutError) as error:
            log.warning("ZooKeeper: is job %s disabled? %s", job, error)
            return None

    def has_standby(self) -> bool:
        """Whether another driver is warm, and would lead next."""
        return any(driver.state == "standby" for driver in self.others())

    def was_handed_over(self, job: str) -> bool:
        """Whether a driver has ended by this job, which has ended no batch since."""
        return self._client.retry(self._client.exists, self._handover(job)) is not None

    def note_hand_over(self, job: str, reason: str) -> None:
        """For the driver that leads next: it isn't to hand the job over again."""
        note = {"by": self._identity.name, "at": time.time(), "reason": reason}
        path = self._handover(job)
        self._client.retry(self._client.ensure_path, path)
        self._client.retry(self._client.set, path, json.dumps(note).encode())

    def forget_hand_over(self, job: str) -> None:
        """The job has ended a batch, or was disabled."""
        with suppress(NoNodeError):
            self._client.retry(self._client.delete, self._handover(job))

    def _handover(self, job: str) -> str:
        return f"{self._jobs}/{job}/handover"

    def end_with_process(self, guard: Watchdog) -> None:
        """Should this process be killed, let the standby lead at once all the same."""

        def protect(state: str) -> None:
            if state == KazooState.CONNECTED and (session := self._client.client_id):
                guard.protect(session)

        self._guard = guard
        self._client.add_listener(protect)
        protect(self._client.state)

    def end_with_parent(self) -> None:
        """Should the JVM die, let the standby lead at once and not after the session's time-out."""

        def watch() -> None:
            while os.getppid() == self._identity.jvm:
                time.sleep(ORPHAN_POLL_SECONDS)
            self._client.stop()
            os._exit(1)

        threading.Thread(target=watch, name="orphan", daemon=True).start()

    def close(self) -> None:
        """Ends the session, and with it the lease and the announcement."""
        self._client.stop()
        self._client.close()
        if self._guard:
            self._guard.dismiss()

    def _read(self, path: str) -> bytes | None:
        """A node's value, None when it isn't there or can't be read now."""
        if not self._client.connected:
            return None
        try:
            value: bytes = self._client.get(path)[0]
        except NoNodeError:
            return None
        except (KazooException, KazooTimeoutError) as error:
            log.warning("ZooKeeper: can't read %s: %s", path, error)
            return None
        return value
