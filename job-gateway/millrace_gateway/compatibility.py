"""May a version go on from the checkpoints that are there? Asked before anything is touched."""

import json
from typing import Any

from millrace_gateway.registry import Registry
from millrace_gateway.submit import Deployment

SECONDS = 30
# What contracts of before say that need not be kept to: a checkpoint keeps the number of partitions
# that it began with, whatever the settings say (OffsetSeqMetadata.setSessionConf); windows and
# joins are the query's, which a driver holds to its checkpoint before it stands by.
NOT_SAID_ANY_MORE = {"shuffle_partitions", "window_seconds", "join_seconds"}

Contracts = dict[str, dict[str, Any]]


class Incompatible(Exception):
    """A version can't read a checkpoint; says of which job, why, and what to do."""


def check(registry: Registry, deployment: Deployment) -> None:
    """Raises Incompatible unless each job of the version keeps to its checkpoint's contract."""
    offered = offered_by(deployment)
    kept = {job: registry.contract(job) for job in offered}
    if breaches := compare(kept, offered):
        raise Incompatible(
            f"{deployment.application} {deployment.version} can't go on from the checkpoints of"
            " the version that runs:\n"
            + "\n".join(f"  {breach}" for breach in breaches)
            + "\nNothing was changed. Restore what is named, or start the job anew beside its old"
            " checkpoint: docs/new-state.md"
        )


def compare(kept: dict[str, dict[str, Any] | None], offered: Contracts) -> list[str]:
    """A line for each thing that differs. Another checkpoint has nothing to keep to.

    Of fields, which a contract has by name, some may be new and some left out.
    """
    breaches = []
    for job, new in offered.items():
        old = kept.get(job)
        if old is None or old["checkpoint"] != new["checkpoint"]:
            continue
        for name in sorted((old.keys() | new.keys()) - NOT_SAID_ANY_MORE):
            was, would_be = old.get(name), new.get(name)
            if isinstance(was or would_be, dict):
                breaches += _of_fields(f"{job}: {name}", was or {}, would_be or {})
            elif was != would_be:
                breaches.append(f"{job}: {name} was {was}, would be {would_be}")
    return breaches


def _of_fields(where: str, old: dict[str, Any], new: dict[str, Any]) -> list[str]:
    return [
        f"{where}: {name} was {old[name]}, would be {new[name]}"
        for name in sorted(old.keys() & new.keys())
        if old[name] != new[name]
    ]


def offered_by(deployment: Deployment) -> Contracts:
    """The contracts that a deployed version states, by job."""
    done = deployment.ask("millrace_jobs.contract", SECONDS)
    if done.returncode:
        raise Incompatible(
            f"{deployment.package} doesn't tell its contracts: {done.stderr.strip()[-300:]}"
        )
    contracts: Contracts = json.loads(done.stdout)
    return contracts
