"""The gateway itself: `python -m millrace_gateway.daemon`, one on each edge host.

Whatever it can't handle ends it, and systemd starts it again: nothing is lost with it, and a start
takes a second.
"""

import contextlib
import logging
import signal
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

from kazoo.exceptions import KazooException
from kazoo.handlers.threading import KazooTimeoutError

from millrace_gateway import settings as configuration
from millrace_gateway.books.account import Figures
from millrace_gateway.books.keeper import Keeper, keep
from millrace_gateway.books.store import Store
from millrace_gateway.books.witness import Witness
from millrace_gateway.decide import (
    Decision,
    Intent,
    Kill,
    Observation,
    Order,
    SendOrder,
    Submission,
    Submit,
    Wait,
    decide,
)
from millrace_gateway.lag import Lags
from millrace_gateway.metrics import Metrics, look
from millrace_gateway.registry import LeaderRegistry, LockLost, Registry
from millrace_gateway.settings import Settings
from millrace_gateway.submit import Archive, Child, NotDeployed, deployment
from millrace_gateway.yarn import Unreachable, Yarn
from millrace_shared.driver_record import DriverRecord, leader

log = logging.getLogger("gateway")


class Gateway:
    """The one that acts. ``clock`` gives seconds since 1970."""

    def __init__(
        self, settings: Settings, registry: LeaderRegistry, yarn: Yarn, clock: Any = time.time
    ) -> None:
        self._settings = settings
        self._registry = registry
        self._yarn = yarn
        self._clock = clock
        self._children: dict[str, Child] = {}
        self._said: dict[str, tuple[str, str]] = {}

    def take_over(self) -> None:
        """Closes what this host began before it was restarted: those children died with it."""
        for application in self._registry.applications():
            last = self._registry.submission(application)
            if last and last.ended is None and last.gateway == self._settings.name:
                self._close(application, last, "the gateway was restarted meanwhile")

    def turn(self) -> None:
        """One look at every application, and the next step for each."""
        if not self._registry.holds_lock():
            raise LockLost(self._settings.znodes.gateway_lock)
        for application in self._registry.applications():
            self._reap(application)
            if intent := self._registry.intent(application):
                self._tend(application, intent)

    def leave(self) -> None:
        """Leaves nothing in flight, so that the successor needn't wait for it."""
        for application, child in self._children.items():
            child.kill()
            with contextlib.suppress(LockLost, KazooException):
                if last := self._registry.submission(application):
                    self._close(application, last, "the gateway was stopped meanwhile")

    def _reap(self, application: str) -> None:
        child = self._children.get(application)
        if child is None or not child.ended():
            return
        del self._children[application]
        if last := self._registry.submission(application):
            self._close(application, last, child.error())

    def _tend(self, application: str, intent: Intent) -> None:
        try:
            decision = decide(self._see(application, intent), self._settings.limits)
            self._say(application, intent, decision)
            self._act(application, decision)
        except Unreachable as error:
            self._say(application, intent, Decision(Wait(), "unknown", str(error)))

    def _see(self, application: str, intent: Intent) -> Observation:
        active = self._yarn.active(application)
        drivers = self._registry.drivers(application)
        leads = leader(drivers)
        limits = self._settings.limits
        return Observation(
            now=self._clock(),
            intent=intent,
            order=self._registry.order(application),
            submission=self._registry.submission(application),
            active=active,
            # The past matters only to a next start.
            ended=[] if len(active) >= limits.drivers else self._yarn.ended(application),
            leading=leads.run if leads else "",
            standbys=frozenset(d.run for d in drivers if d.state == "standby"),
            sharing=self._sharing(drivers, leads),
            stuck=frozenset(
                d.run
                for d in drivers
                if d.state == "warming" and self._clock() - d.since > limits.warm
            ),
            led_since=leads.since if leads else 0.0,
        )

    def _sharing(
        self, drivers: Sequence[DriverRecord], leads: DriverRecord | None
    ) -> frozenset[str]:
        """Those on the leader's host that stand by, or warm up to, if there are other hosts.

        To warm up takes minutes, in which that host's loss would end both.
        """
        sharing = frozenset(
            driver.run
            for driver in drivers
            if leads and driver.state in ("warming", "standby") and driver.host == leads.host
        )
        return sharing if sharing and self._yarn.hosts() > 1 else frozenset()

    def _act(self, application: str, decision: Decision) -> None:
        match decision.action:
            case SendOrder(state, version):
                self._registry.put_order(application, Order(state, version, self._clock()))
            case Kill(run):
                self._yarn.kill(run)
            case Submit(version):
                self._submit(application, version)

    def _submit(self, application: str, version: str) -> None:
        last = self._registry.submission(application)
        failures = last.failures if last and last.version == version else 0
        begun = Submission(version, self._settings.name, self._clock(), failures=failures)
        # Written down first: whoever takes over in the middle must know of it.
        self._registry.put_order(application, Order("running", version, begun.started))
        self._registry.put_submission(application, begun)
        try:
            self._children[application] = Child(
                self._settings.spark_submit,
                deployment(self._settings.deployments, application, version),
                self._settings.logs / f"submit-{application}.log",
                self._settings.submit_timeout_seconds,
            )
        except (NotDeployed, OSError) as error:
            self._close(application, begun, str(error))

    def _close(self, application: str, submission: Submission, error: str) -> None:
        failures = submission.failures + 1 if error else 0
        self._registry.put_submission(
            application, replace(submission, ended=self._clock(), failures=failures, error=error)
        )

    def _say(self, application: str, intent: Intent, decision: Decision) -> None:
        """A line in the log and a new status for each change, not for each look."""
        said = (decision.phase, decision.detail)
        if self._said.get(application) == said:
            return
        self._registry.put_status(
            application,
            {
                "phase": decision.phase,
                "detail": decision.detail,
                "run": decision.run,
                "version": intent.version,
                "gateway": self._settings.name,
                "since": self._clock(),
            },
        )
        self._said[application] = said
        log.info("%s: %s: %s", application, *said)


def run(settings: Settings) -> None:
    """Acts for as long as it holds the lock, which it waits for; returns only by an exception."""
    client = settings.connect()
    lock = client.Lock(settings.znodes.gateway_lock, settings.name)
    registry, lags = Registry(client, settings.znodes), Lags(settings.kafka)
    metrics = _watch(settings, registry, lags)
    try:
        with metrics.served(settings.metrics_port):
            log.info("%s stands by", settings.name)
            lock.acquire()
            log.info("%s acts", settings.name)
            metrics.acting = True
            metrics.books = _keep_books(settings, registry, lags)
            _act(settings, LeaderRegistry(client, settings.znodes, lock))
    finally:
        # Ends the session, and with it the lock; the other gateway takes over at once.
        client.stop()
        client.close()


def _act(settings: Settings, registry: LeaderRegistry) -> None:
    gateway = Gateway(settings, registry, settings.yarn())
    try:
        gateway.take_over()
        while True:
            gateway.turn()
            time.sleep(settings.poll_seconds)
    finally:
        gateway.leave()


def _watch(settings: Settings, registry: Registry, lags: Lags) -> Metrics:
    """Looks at what there is to tell, whether this gateway acts or stands by."""
    metrics = Metrics()
    metrics.keep_looking(partial(look, registry, settings.yarn(), settings.deployments, lags.ask))
    return metrics


def _keep_books(
    settings: Settings, registry: Registry, lags: Lags
) -> Callable[[], Mapping[str, Figures]]:
    """Keeps them beside everything else, and gives what tells of them."""

    def archives() -> Iterator[Archive]:
        for application in registry.applications():
            if intent := registry.intent(application):
                yield from deployment(settings.deployments, application, intent.version).archives()

    def told(archive: Archive) -> Mapping[int, int]:
        read = lags.told.get(archive.job, {})
        return {number: end for (topic, number), end in read.items() if topic == archive.topic}

    witness, store = Witness(settings.kafka.brokers), Store(settings.cassandra)
    keeper = Keeper(settings.files(), witness, store, told)
    keep(keeper, archives)
    return keeper.figures


def main() -> None:
    logging.basicConfig(level=logging.INFO, format="%(levelname)s %(message)s", stream=sys.stdout)
    logging.getLogger("kazoo").setLevel(logging.WARNING)
    # As an exception, so that `systemctl stop` takes the way of every other end.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(0))
    settings = configuration.load()
    try:
        run(settings)
    except LockLost as error:
        sys.exit(f"the lock was lost: {error}")
    except KazooTimeoutError:
        sys.exit(f"ZooKeeper doesn't answer: {settings.zookeeper}")


if __name__ == "__main__":
    main()
