"""Prometheus on the edge hosts: what it has now, asked at its port; what it had, asked by SSH."""

import json
import shlex
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime
from subprocess import TimeoutExpired
from typing import Any
from urllib.parse import urlencode

from millrace.cluster.services import get_json
from millrace.cluster.ssh import on_all, run_on
from millrace.common.errors import UnreachableError
from millrace.plan import Endpoint, Host, Plan

SERVICE = "prometheus_server"
ANSWER_SECONDS = 10

Series = dict[str, Any]  # `metric`: its labels; `values`: pairs of Unix seconds and text


@dataclass(frozen=True)
class Target:
    """What is scraped: a service (``job``) on a host, and how the last scrape went.

    ``health`` is up, down, or unknown before the first scrape, which was ``age`` seconds ago;
    ``error`` is why it failed.
    """

    job: str
    host: str
    health: str
    age: float
    error: str = ""


@dataclass(frozen=True)
class Alert:
    """``state`` is pending or firing, ``since`` ISO 8601. ``labels`` say which one it is."""

    labels: Mapping[str, str]
    state: str
    since: str
    summary: str
    runbook: str

    @property
    def name(self) -> str:
        return self.labels["alertname"]

    @property
    def severity(self) -> str:
        return self.labels["severity"]

    @property
    def component(self) -> str:
        return self.labels["component"]


@dataclass(frozen=True)
class Sample:
    """A figure of a service (``job``) on a host, scraped ``age`` seconds ago. ``labels`` are the
    others. Those of one scrape have one age."""

    name: str
    job: str
    host: str
    value: float
    age: float
    labels: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class Scraped:
    """What one Prometheus has: of each series its last figure. All ages are by its own clock, which
    was ``at`` when it was asked, in seconds since 1970."""

    at: float
    targets: tuple[Target, ...] = ()
    samples: tuple[Sample, ...] = ()
    alerts: tuple[Alert, ...] = ()


def scraped(at: Endpoint, selector: str, within: float, seconds: float) -> Scraped:
    """Its targets, its alerts, and the figures of a selector that are no older than ``within``,
    asked at its port. Raises as `millrace.cluster.services` does.

    Asked for a range, it gives a figure with the time of its scrape, and also where the next scrape
    got no answer; asked for what is now, it would give neither.
    """

    def ask(path: str, **words: str) -> Any:
        return get_json(at, f"/api/v1/{path}?{urlencode(words)}", seconds)["data"]

    now, _ = ask("query", query="time()")["result"]
    series = ask("query", query=f"{selector}[{within:.0f}s]", time=f"{now}")["result"]
    targets = ask("targets", state="active")["activeTargets"]
    return Scraped(
        now,
        tuple(_target(target, now) for target in targets),
        tuple(_sample(one, now) for one in series),
        tuple(_alert(alert) for alert in ask("alerts")["alerts"]),
    )


def _target(target: dict[str, Any], now: float) -> Target:
    labels = target["labels"]
    since = datetime.fromisoformat(target["lastScrape"]).timestamp()
    age = max(0.0, now - since)
    return Target(labels["job"], labels["host"], target["health"], age, target["lastError"])


def _sample(series: Series, now: float) -> Sample:
    labels = dict(series["metric"])
    name, job, host = (labels.pop(key, "") for key in ("__name__", "job", "host"))
    since, value = series["values"][-1]
    return Sample(name, job, host, float(value), max(0.0, now - since), labels)


def _alert(alert: dict[str, Any]) -> Alert:
    notes = alert["annotations"]
    runbook = notes["runbook_url"].rpartition("/")[2]
    return Alert(alert["labels"], alert["state"], alert["activeAt"], notes["summary"], runbook)


def firing(plan: Plan, seconds: float) -> list[Series]:
    """Returns every alert that fired within the last so many seconds, and at which evaluations.

    Each Prometheus tells of what it found itself. Raises UnreachableError when none answers.
    """
    return query(plan, f'ALERTS{{alertstate="firing"}}[{max(1, round(seconds))}s]')


def query(plan: Plan, expression: str) -> list[Series]:
    """Returns what it gives now, of all Prometheis that answer.

    Raises UnreachableError when none does.
    """
    asked = {"query": expression}
    answers = on_all(plan.hosts_of(SERVICE), lambda host: _ask(plan, host, "query", asked))
    found = [answer for answer in answers.values() if isinstance(answer, list)]
    if not found:
        raise UnreachableError(
            "no Prometheus answers\n" + "\n".join(f"{h}: {said}" for h, said in answers.items()),
            "`millrace status` shows which hosts are down",
        )
    return [series for answer in found for series in answer]


def history(
    plan: Plan, host: Host, expression: str, since: float, until: float, step: int
) -> list[Series]:
    """Returns what one of them has, a value each ``step`` seconds.

    Raises UnreachableError when none answers.
    """
    asked = {"query": expression, "start": f"{since:.0f}", "end": f"{until:.0f}", "step": f"{step}"}
    answer = _ask(plan, host, "query_range", asked)
    if isinstance(answer, str):
        raise UnreachableError(f"Prometheus on {host.name} doesn't answer: {answer}")
    return answer


def _ask(plan: Plan, host: Host, endpoint: str, asked: dict[str, str]) -> list[Series] | str:
    """Returns the series, or why there are none."""
    port = plan.services[SERVICE].ports["http"]
    command = ["curl", "-sSf", "-m", str(ANSWER_SECONDS)]
    for name, value in asked.items():
        command += ["--data-urlencode", f"{name}={value}"]
    command.append(f"http://{host.address}:{port}/api/v1/{endpoint}")
    try:
        done = run_on(plan, host, shlex.join(command))
    except TimeoutExpired:
        return "no answer"
    if done.returncode:
        return done.stderr.strip() or "unreachable"
    result: list[Series] = json.loads(done.stdout)["data"]["result"]
    return result
