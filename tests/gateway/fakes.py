"""What gateways are tested with: a pair of drivers, and what they ask, in memory."""

from pathlib import Path
from typing import Any

from millrace_gateway.decide import Intent, Order, Run, Submission
from millrace_gateway.upkeep import Record
from millrace_gateway.yarn import Unreachable

from millrace_shared.driver_record import DriverRecord

NOW = 10_000.0
RUNNING_V2 = Intent("running", "v2")
TOLD_V2 = Order("running", "v2", NOW - 500)
ONE, TWO = "application_1", "application_2"


def run(version: str, state: str = "RUNNING", number: int = 1, **times: float) -> Run:
    return Run(f"application_{number}", state, version, times.get("started", NOW - 500), NOW - 400)


PAIR = [run("v2"), run("v2", number=2)]
UPGRADE = [run("v1"), run("v2", number=2)]


class Registry:
    """In memory what `LeaderRegistry` keeps in ZooKeeper."""

    def __init__(self, intent: Intent) -> None:
        self.leads = True
        self.intents = {"insights": intent}
        self.orders: dict[str, Order] = {}
        self.submissions: dict[str, Submission] = {}
        self.statuses: list[dict[str, Any]] = []
        self.told: list[dict[str, Any]] = []  # by the drivers
        self.record: Record | None = None

    def upkeep(self) -> Record | None:
        return self.record

    def put_upkeep(self, record: Record) -> None:
        self.record = record

    def drivers(self, _: str) -> list[DriverRecord]:
        return [DriverRecord.read({"host": "", "since": 0} | driver) for driver in self.told]

    def holds_lock(self) -> bool:
        return self.leads

    def applications(self) -> list[str]:
        return list(self.intents)

    def intent(self, application: str) -> Intent | None:
        return self.intents.get(application)

    def order(self, application: str) -> Order | None:
        return self.orders.get(application)

    def submission(self, application: str) -> Submission | None:
        return self.submissions.get(application)

    def put_order(self, application: str, order: Order) -> None:
        self.orders[application] = order

    def put_submission(self, application: str, submission: Submission) -> None:
        self.submissions[application] = submission

    def put_status(self, application: str, status: dict[str, Any]) -> None:
        self.statuses.append(status)


class Cluster:
    """In memory what `Yarn` asks the ResourceManager."""

    def __init__(self) -> None:
        self.runs: list[Run] = []
        self.killed: list[str] = []
        self.away = False
        self.workers = 3

    def kill(self, run: str) -> None:
        self.killed.append(run)

    def active(self, _: str) -> list[Run]:
        if self.away:
            raise Unreachable("no active ResourceManager among master-1:8088, master-2:8088")
        return self.runs

    def ended(self, _: str) -> list[Run]:
        return []

    def hosts(self) -> int:
        return self.workers


def spark_submit(folder: Path, script: str) -> Path:
    return program(folder, "spark-submit", script)


def program(folder: Path, name: str, script: str) -> Path:
    folder.mkdir(exist_ok=True)
    path = folder / name
    path.write_text(f"#!/bin/sh\n{script}\n")
    path.chmod(0o755)
    return path
