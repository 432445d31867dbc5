"""Prometheus on the edge hosts. It is asked there: operators' machines can't reach its port."""

import json
import shlex
from subprocess import TimeoutExpired
from typing import Any

from millrace.cluster.ssh import on_all, run_on
from millrace.common.errors import OperatorError
from millrace.plan import Host, Plan

SERVICE = "prometheus_server"
ANSWER_SECONDS = 10

Series = dict[str, Any]  # `metric`: its labels; `values`: pairs of Unix seconds and text


def firing(plan: Plan, seconds: float) -> list[Series]:
    """Every alert that fired within the last so many seconds, and at which evaluations.

    Each Prometheus tells of what it found itself. OperatorError when none answers.
    """
    return query(plan, f'ALERTS{{alertstate="firing"}}[{max(1, round(seconds))}s]')


def query(plan: Plan, expression: str) -> list[Series]:
    """What it gives now, of all Prometheis that answer; OperatorError when none does."""
    asked = {"query": expression}
    answers = on_all(plan.hosts_of(SERVICE), lambda host: _ask(plan, host, "query", asked))
    found = [answer for answer in answers.values() if isinstance(answer, list)]
    if not found:
        raise OperatorError(
            "no Prometheus answers\n" + "\n".join(f"{h}: {said}" for h, said in answers.items()),
            "`millrace status` shows which hosts are down",
        )
    return [series for answer in found for series in answer]


def history(
    plan: Plan, host: Host, expression: str, since: float, until: float, step: int
) -> list[Series]:
    """What one of them has, a value each ``step`` seconds; OperatorError when it is silent."""
    asked = {"query": expression, "start": f"{since:.0f}", "end": f"{until:.0f}", "step": f"{step}"}
    answer = _ask(plan, host, "query_range", asked)
    if isinstance(answer, str):
        raise OperatorError(f"Prometheus on {host.name} doesn't answer: {answer}")
    return answer


def _ask(plan: Plan, host: Host, endpoint: str, asked: dict[str, str]) -> list[Series] | str:
    """The series, or why there are none."""
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
