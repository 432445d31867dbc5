"""The plan as Ansible sees it."""

import shlex
from collections.abc import Mapping
from typing import Any

from millrace.cluster.access import HOST_KEYS, key_file, user, way_in
from millrace.common.paths import REPO
from millrace.config import READERS, THIS_MACHINE
from millrace.plan import CONFIG_ROOT, CONTROLLER_ID_BASE, DATA_ROOT, LOGS_ROOT, Host, Plan, Service
from millrace.plan.receivers import secrets_folder, secrets_of, with_folder

# Where hosts keep what is ours: distributions, configuration, data, logs.
PATHS = {
    "software": "/opt/millrace",
    "config": CONFIG_ROOT,
    "data": DATA_ROOT,
    "logs": LOGS_ROOT,
}


def build_inventory(
    plan: Plan,
    manifest: dict[str, dict[str, str]],
    *,
    artifacts: str | None = None,
    balancer: str | None = None,
    devices: Mapping[str, str] | None = None,
) -> dict[str, Any]:
    """Ansible's dynamic inventory (``--list``): groups by host group, service and zone.

    Args:
        plan: the environment's plan.
        manifest: distribution → version, file and sha256 of the tarballs hosts may fetch.
        artifacts: the URL of the artifact store, where the plan doesn't know it.
        balancer: the ARN of the load balancer, whose word for who signed in is taken.
        devices: EBS ids by volume name, of hosts whose volumes have to be mounted.
    """
    groups: dict[str, Any] = {}
    for host in plan.hosts:
        for group in (host.group, f"zone_{host.zone}", *host.services):
            # A group of hosts may bear the name of the one service it runs.
            members = groups.setdefault(group, {"hosts": []})["hosts"]
            if host.name not in members:
                members.append(host.name)
    for group, variables in _group_vars(plan).items():
        if group in groups:
            groups[group]["vars"] = variables
    return {
        "all": {"vars": _all_vars(plan, manifest, artifacts or artifacts_url(plan), balancer)},
        "_meta": {"hostvars": {h.name: _host_vars(plan, h, devices or {}) for h in plan.hosts}},
        **groups,
    }


def entered(plan: Plan, inventory: dict[str, Any]) -> dict[str, Any]:
    """An inventory with the way from this machine to each host."""
    variables = inventory["all"]["vars"]
    variables["ansible_ssh_private_key_file"] = str(
        REPO / variables["ansible_ssh_private_key_file"]
    )
    for name, host in inventory["_meta"]["hostvars"].items():
        options = (*HOST_KEYS, "-o", "LogLevel=ERROR", *way_in(plan, plan.host(name)))
        host["ansible_ssh_common_args"] = shlex.join(options)
    return inventory


def deployment(plan: Plan, application: str) -> dict[str, Any]:
    """Returns the configuration of an application's jobs but for the version: parts of the plan."""
    return {
        "application": application,
        "jobs": plan.applications[application],
        "names": plan.names.model_dump(),
        # Jobs call nobody's doors.
        "endpoints": plan.endpoints.model_dump(mode="json", exclude={"insights", "intake"}),
        "streams": _streams(plan),
        "tables": {name: table.model_dump(mode="json") for name, table in plan.tables.items()},
        "settings": plan.spark.rendered()["settings"],
    }


def artifacts_url(plan: Plan) -> str:
    if plan.machines:
        return plan.machines.artifacts
    return f"http://{plan.network.artifacts}"


def _all_vars(
    plan: Plan, manifest: dict[str, dict[str, str]], url: str, balancer: str | None
) -> dict[str, Any]:
    return {
        "ansible_user": user(plan),
        "ansible_ssh_private_key_file": str(key_file(plan)),
        "millrace": _provider(plan)
        | {
            "environment": plan.environment,
            "cluster": plan.cluster,
            "profile": plan.profile,
            "names": plan.names.model_dump(),
            "digest": plan.digest,
            "artifacts_url": url,
            "hosts": {host.name: _host(plan, host) for host in plan.hosts},
            "paths": PATHS,
            "services": {name: _service(service) for name, service in plan.services.items()},
            "shared": {
                "base": plan.base.model_dump(),
                "hadoop": plan.hadoop.model_dump(),
                "spark": plan.spark.rendered(),
            },
            "distributions": {
                name: entry | _places(name, entry, url) for name, entry in manifest.items()
            },
            "endpoints": plan.endpoints.model_dump(mode="json"),
            "this_machine": plan.sources(THIS_MACHINE),
            "forwarders": _forwarders(plan),
            "sign_in": _sign_in(plan, balancer),
            "topics": {name: topic.model_dump() for name, topic in plan.topics.items()},
            "replication": {
                "kafka": plan.replication.kafka.factor,
                "min_insync": plan.replication.kafka.min_insync,
                "cassandra": plan.replication.cassandra,
                "hdfs": plan.replication.hdfs,
                "sentinel_quorum": plan.replication.sentinel_quorum,
            },
            "receiver": _receiver(plan),
            "applications": plan.applications,
            "job_folders": plan.job_folders,
        },
    }


def _group_vars(plan: Plan) -> dict[str, dict[str, Any]]:
    """Parts of the plan that one service alone reads.

    Ansible copies all that a host has for each template; these are as much as everything else.
    """
    return {
        "job_gateway": {
            "millrace_deployments": {name: deployment(plan, name) for name in plan.applications}
        },
        "collector": {"millrace_streams": _streams(plan)},
    }


def _provider(plan: Plan) -> dict[str, str]:
    """Only where it matters to a role: hosts of `local` come from our own image, others don't."""
    if plan.provider == "aws":
        assert plan.aws, "every plan of this provider has it"
        return {
            "provider": plan.provider,
            "region": plan.aws.region,
            "log_group": plan.aws.log_group,
        }
    return {} if plan.provider == "docker" else {"provider": plan.provider}


def _forwarders(plan: Plan) -> list[str]:
    """Returns whose word programs behind a proxy take for the address that a request comes from."""
    proxies = [host.address for host in plan.hosts_of("edge_proxy")]
    balancers = plan.sources(READERS) if plan.aws else []
    return ["127.0.0.1", *proxies, *balancers]


def _sign_in(plan: Plan, balancer: str | None) -> dict[str, Any] | None:
    """Returns by which load balancer people sign in, and what they may read; None if nowhere."""
    if plan.aws is None or plan.aws.sign_in is None:
        return None
    may = plan.aws.sign_in.model_dump(include={"everybody", "groups", "groups_claim"})
    return {"region": plan.aws.region, "balancer": balancer, "scopes": may}


def _service(service: Service) -> dict[str, Any]:
    paths = {kind: f"{PATHS[kind]}/{service.unit}" for kind in ("config", "data", "logs")}
    return service.model_dump(mode="json") | {"paths": paths}


def _streams(plan: Plan) -> dict[str, Any]:
    return {name: stream.model_dump(mode="json") for name, stream in plan.streams.items()}


def _receiver(plan: Plan) -> dict[str, Any]:
    """Returns the receiver of alerts: its settings, and the files that a host needs for them."""
    folder = secrets_folder()
    return {
        "settings": with_folder(plan.receiver, folder),
        "folder": folder,
        "secrets": secrets_of(plan.receiver),
    }


def _places(name: str, entry: Mapping[str, str], url: str) -> dict[str, str]:
    """Returns a distribution's tarball URL, the directory of this version, and the link to it."""
    path = f"{PATHS['software']}/{name}"
    return {
        "url": f"{url}/{entry['file']}",
        "directory": f"{path}-{entry['version']}",
        "path": path,
    }


def _host(plan: Plan, host: Host) -> dict[str, Any]:
    """``reached_at``: its address, as an operator's machine knows it."""
    return host.model_dump(exclude={"name", "volumes"}) | {
        "controller_id": CONTROLLER_ID_BASE + host.index,
        "reached_at": plan.reached_at(host.address),
    }


def _host_vars(plan: Plan, host: Host, devices: Mapping[str, str]) -> dict[str, Any]:
    found = {
        "ansible_host": host.address,
        **(
            {"millrace_page": plan.door(host, "insights")}
            if host in plan.hosts_of("edge_proxy")
            else {}
        ),
        "millrace_host": {"name": host.name} | _host(plan, host),
        "firewall_clients": firewall_clients(plan, host),
    }
    if devices:
        found["machine_volumes"] = [
            {"path": volume.path, "id": devices[volume.name]} for volume in host.volumes
        ]
    return found


def firewall_clients(plan: Plan, host: Host) -> dict[str, Any]:
    """Client → where it comes from and which ports it may call; without those that are nowhere."""
    found: dict[str, Any] = {}
    for edge in plan.edges_to(host):
        if addresses := plan.sources(edge.client):
            client = found.setdefault(edge.client, {"addresses": addresses, "edges": []})
            client["edges"].append(
                {"protocol": edge.protocol, "ports": edge.ports, "purpose": edge.purpose}
            )
    return found
