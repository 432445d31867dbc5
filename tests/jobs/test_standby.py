"""Who stands by, with what it is warm, and from when on it is one."""

from dataclasses import dataclass, replace
from types import SimpleNamespace
from typing import Any

import pytest
from millrace_jobs.standby import wait
from millrace_jobs.standby.ready import ReadyJob
from pyspark.errors import StreamingQueryException

from tests.jobs.fakes import workers
from tests.jobs.samples import settings_of


@pytest.mark.parametrize(
    ("rehearsing", "leads_at_once", "steps"),
    [
        (True, False, ["rehearsal", "leads", "rehearsal ends"]),
        (False, True, ["standby"]),
        (False, False, ["standby", "rehearsal", "leads", "rehearsal ends"]),
    ],
)
def test_whoever_stands_by_rehearses(
    monkeypatch: pytest.MonkeyPatch, rehearsing: bool, leads_at_once: bool, steps: list[str]
) -> None:
    done: list[str] = []

    def acquire(within: float | None = None) -> bool:
        if within is None:
            done.append("leads")
        return leads_at_once

    def rehearse(*_: Any) -> Any:
        done.append("rehearsal")
        return SimpleNamespace(end=lambda: done.append("rehearsal ends"))

    monkeypatch.setattr(wait, "rehearse", rehearse)
    driver: Any = SimpleNamespace(lease=SimpleNamespace(acquire=acquire), announce=done.append)
    enabled: Any = [object()]
    wait.await_leadership(enabled, workers([]), 3, driver, rehearsing=rehearsing)
    assert done == steps


def test_with_all_jobs_disabled_a_driver_leads_without_rehearsing() -> None:
    done: list[Any] = []
    lease = SimpleNamespace(acquire=lambda within=None: done.append(within) or within is None)
    driver: Any = SimpleNamespace(lease=lease, announce=done.append)
    wait.await_leadership([], workers([]), 3, driver, rehearsing=True)
    assert done == ["standby", 3, None]


class Rehearsed:
    """A stand-in for a rehearsal, which is warm at once; ``done`` tells what was rehearsed."""

    def __init__(self, job: Any, scratch: Any, *_: Any, **more: Any) -> None:
        self.done.append((job, scratch, more.get("batches")))
        if job == self.fails:
            raise StreamingQueryException("no such table")
        self._job = job
        if warm := more.get("when_warm"):
            warm()

    def wait(self) -> None:
        if self._job == self.fails_later:
            raise StreamingQueryException("no such table")


@pytest.fixture
def rehearsed(monkeypatch: pytest.MonkeyPatch) -> list[Any]:
    """What is rehearsed, while jobs are as wide as said in `on_all_executors`."""
    Rehearsed.done, Rehearsed.fails, Rehearsed.fails_later = [], None, None
    monkeypatch.setattr(wait, "Rehearsal", Rehearsed)
    monkeypatch.setattr(wait, "scratch", lambda _, name: name)
    monkeypatch.setattr(
        wait, "on_all_executors", lambda one, _: replace(one, job=f"{one.name}, wide")
    )
    return Rehearsed.done


def to_rehearse(*names: str) -> list[ReadyJob]:
    return [
        ReadyJob(
            SimpleNamespace(job=name, settings=settings_of("traffic")),
            name,  # type: ignore[arg-type]
            None,  # type: ignore[arg-type]
        )
        for name in names
    ]


def test_a_standby_is_one_once_all_jobs_ran_on_all_executors(rehearsed: list[Any]) -> None:
    driver: Any = SimpleNamespace(announce_standby=lambda: rehearsed.append("standby"))
    wait.rehearse(to_rehearse("traffic", "archive"), workers(rehearsed), driver)
    assert rehearsed == [
        ("traffic", "traffic", None),
        "all executors",
        ("traffic, wide", "traffic-on-all", 2),
        ("archive, wide", "archive-on-all", 2),
        "standby",
    ]


def test_many_jobs_keep_nobody_from_standing_by(
    monkeypatch: pytest.MonkeyPatch, rehearsed: list[Any]
) -> None:
    clock = iter([0, 1, 89, 91])
    monkeypatch.setattr(wait, "time", SimpleNamespace(monotonic=lambda: next(clock)))
    driver: Any = SimpleNamespace(announce_standby=lambda: rehearsed.append("standby"))
    wait.rehearse(to_rehearse("traffic", "archive", "sessions"), workers(rehearsed), driver)
    assert [entry[1] for entry in rehearsed[2:-1]] == ["traffic-on-all", "archive-on-all"]
    assert rehearsed[-1] == "standby"


def test_a_job_that_cannot_be_prepared_keeps_nobody_from_standing_by(
    monkeypatch: pytest.MonkeyPatch, rehearsed: list[Any]
) -> None:
    def fail(*_: Any) -> Any:
        raise RuntimeError("HDFS is away")

    monkeypatch.setattr(wait, "on_all_executors", fail)
    driver: Any = SimpleNamespace(announce_standby=lambda: rehearsed.append("standby"))
    wait.rehearse(to_rehearse("traffic", "archive"), workers(rehearsed), driver)
    assert rehearsed[-1] == "standby"


def test_what_fails_on_all_executors_keeps_nobody_from_standing_by(rehearsed: list[Any]) -> None:
    Rehearsed.fails = "traffic, wide"
    driver: Any = SimpleNamespace(announce_standby=lambda: rehearsed.append("standby"))
    wait.rehearse(to_rehearse("traffic", "archive"), workers(rehearsed), driver)
    assert rehearsed[-2:] == [("archive, wide", "archive-on-all", 2), "standby"]


@pytest.mark.parametrize("when", ["fails", "fails_later"])
def test_a_first_job_that_cannot_be_rehearsed_leaves_it_to_the_next(
    rehearsed: list[Any], when: str
) -> None:
    setattr(Rehearsed, when, "traffic")
    driver: Any = SimpleNamespace(announce_standby=lambda: rehearsed.append("standby"))
    found = wait.rehearse(to_rehearse("traffic", "archive"), workers(rehearsed), driver)
    assert found is not None
    assert ("archive", "archive", None) in rehearsed
    assert rehearsed[-1] == "standby"


def test_who_can_rehearse_nothing_is_a_standby_all_the_same(rehearsed: list[Any]) -> None:
    Rehearsed.fails = "traffic"
    driver: Any = SimpleNamespace(announce_standby=lambda: rehearsed.append("standby"))
    assert wait.rehearse(to_rehearse("traffic"), workers(rehearsed), driver) is None
    assert rehearsed == [("traffic", "traffic", None), "standby"]


@pytest.mark.parametrize(("number", "tasks", "partitions"), [(2, 2, 3), (1, 1, 3), (4, 4, 4)])
def test_on_all_executors_is_a_task_for_each(
    monkeypatch: pytest.MonkeyPatch, number: int, tasks: int, partitions: int
) -> None:
    made: list[Any] = []
    monkeypatch.setattr(wait, "prepare", lambda *arguments: made.append(arguments))

    @dataclass(frozen=True)
    class Jobs:
        settings: dict[str, Any]

    own = settings_of("traffic", tasks=1, shuffle_partitions=3)
    context: Any = SimpleNamespace(
        job="traffic",
        config=Jobs({"traffic": own, "archive": {}}),
        settings=own,
        spark=None,
        tables="tables",
        lease="lease",
    )
    wait.on_all_executors(ReadyJob(context, None, None), number)  # type: ignore[arg-type]
    [(name, config, *_)] = made
    assert name == "traffic"
    assert config.settings["traffic"] == replace(own, tasks=tasks, shuffle_partitions=partitions)
    assert context.config.settings["traffic"] == own
