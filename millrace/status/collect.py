"""Asks every host, and Kafka's brokers, how they are."""

import json
import shlex
import subprocess
import time
from dataclasses import asdict
from pathlib import Path
from typing import Any

from millrace.cluster import kafka, probe
from millrace.cluster.kafka import AdminClient, KafkaException
from millrace.cluster.ssh import on_all, run_on
from millrace.cluster.zookeeper import disabled, drivers, upkeep
from millrace.common.errors import OperatorError
from millrace.plan import CONTROLLER_ID_BASE, DATA_ROOT, Host, Plan
from millrace.status.ring import ring


def collect(plan: Plan) -> dict[str, Any]:
    """Raw observations: ``hosts`` (host → probe's answer or {"error"}), ``kafka``,
    ``cassandra`` (address → nodetool's UN, UJ or DN), ``drivers``, each job's ``lag``, the
    ``disabled`` jobs, the last ``upkeep``, and when that was: ``at``, in seconds since 1970."""
    admin = kafka.connect(plan)
    return {
        "hosts": on_all(plan.hosts, lambda host: _ask(plan, host)),
        "kafka": _ask_kafka(admin),
        "cassandra": ring(plan),
        "drivers": ask_drivers(plan),
        "disabled": _ask_disabled(plan),
        "upkeep": _ask_upkeep(plan),
        "at": time.time(),
        "lag": {job: _ask_lag(admin, plan, job) for job in plan.jobs},
    }


def _ask(plan: Plan, host: Host) -> dict[str, Any]:
    wanted = {service: _question(plan, host, service) for service in host.services}
    command = ["sudo", "python3", "-", shlex.quote(json.dumps(wanted))]
    try:
        done = run_on(plan, host, command, stdin=Path(probe.__file__).read_text())
    except subprocess.TimeoutExpired:
        return {"error": "no answer in 30 s"}
    if done.returncode:
        return {"error": (done.stderr.strip() or "unreachable").splitlines()[-1]}
    answer: dict[str, Any] = json.loads(done.stdout)
    return answer


def _question(plan: Plan, host: Host, name: str) -> dict[str, Any]:
    service = plan.services[name]
    return {
        "unit": service.unit,
        "ports": service.ports,
        "address": host.address,
        "data": f"{DATA_ROOT}/{service.unit}",
        "master": plan.names.redis.master,
        "node_id": CONTROLLER_ID_BASE + host.index,
    }


def ask_drivers(plan: Plan) -> list[dict[str, Any]]:
    """Those that are registered, and nobody while ZooKeeper is silent."""
    try:
        return drivers(plan)
    except OperatorError:
        return []  # ZooKeeper's own line says so


def _ask_disabled(plan: Plan) -> set[str]:
    try:
        return disabled(plan)
    except OperatorError:
        return set()


def _ask_upkeep(plan: Plan) -> dict[str, Any] | None:
    try:
        return upkeep(plan)
    except OperatorError:
        return None


def _ask_kafka(admin: AdminClient) -> dict[str, Any]:
    """Brokers and partitions as a client sees them."""
    try:
        metadata = admin.list_topics(timeout=5)
    except KafkaException as error:
        return {"error": str(error.args[0])}
    partitions = [p for topic in metadata.topics.values() for p in topic.partitions.values()]
    return {
        "brokers": len(metadata.brokers),
        "partitions": len(partitions),
        "under_replicated": sum(len(p.isrs) < len(p.replicas) for p in partitions),
        "leaderless": sum(p.leader < 0 for p in partitions),
    }


def _ask_lag(admin: AdminClient, plan: Plan, job: str) -> dict[str, Any]:
    try:
        return asdict(kafka.lag(admin, plan, job, time.time()))
    except KafkaException as error:
        return {"error": str(error.args[0])}
