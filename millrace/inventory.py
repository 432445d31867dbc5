"""The plan as Ansible sees it."""

from typing import Any

from millrace.paths import STATE
from millrace.plan import CONTROLLER_ID_BASE, Host, Plan

ARTIFACTS_PORT = 8000


def build_inventory(plan: Plan, manifest: dict[str, dict[str, str]]) -> dict[str, Any]:
    """Ansible's dynamic inventory (``--list``): groups by host group, service and zone.

    Args:
        plan: the environment's plan.
        manifest: distribution → version, file and sha256 of the tarballs hosts may fetch.
    """
    groups: dict[str, Any] = {}
    for host in plan.hosts:
        for group in (host.group, f"zone_{host.zone}", *host.services):
            # A group of hosts may bear the name of the one service it runs.
            members = groups.setdefault(group, {"hosts": []})["hosts"]
            if host.name not in members:
                members.append(host.name)
    return {
        "all": {"vars": _all_vars(plan, manifest)},
        "_meta": {"hostvars": {host.name: _host_vars(host) for host in plan.hosts}},
        **groups,
    }


def _all_vars(plan: Plan, manifest: dict[str, dict[str, str]]) -> dict[str, Any]:
    url = f"http://{plan.network.artifacts}:{ARTIFACTS_PORT}"
    return {
        "ansible_user": "millrace",
        "ansible_ssh_private_key_file": f"{STATE.name}/{plan.environment}/ssh_key",
        "millrace": {
            "environment": plan.environment,
            "cluster": plan.cluster,
            "profile": plan.profile,
            "digest": plan.digest,
            "artifacts_url": url,
            "hosts": {host.name: _host(host) for host in plan.hosts},
            "services": {name: s.model_dump(mode="json") for name, s in plan.services.items()},
            "shared": plan.shared,
            "distributions": {
                name: entry | {"url": f"{url}/{entry['file']}"} for name, entry in manifest.items()
            },
            "endpoints": plan.endpoints,
            "topics": {name: topic.model_dump() for name, topic in plan.topics.items()},
            "limits": plan.limits,
            "replication": {
                "kafka": plan.replication.kafka.factor,
                "min_insync": plan.replication.kafka.min_insync,
                "cassandra": plan.replication.cassandra,
                "hdfs": plan.replication.hdfs,
                "sentinel_quorum": plan.replication.sentinel_quorum,
            },
            "applications": plan.applications,
        },
    }


def _host(host: Host) -> dict[str, Any]:
    return host.model_dump(exclude={"name", "volumes"}) | {
        "controller_id": CONTROLLER_ID_BASE + host.index
    }


def _host_vars(host: Host) -> dict[str, Any]:
    return {"ansible_host": host.address, "millrace_host": {"name": host.name} | _host(host)}
