"""What stands in the way of a plan on this machine's Docker engine."""

from collections.abc import Iterator
from ipaddress import IPv4Network, ip_network
from typing import Any

import docker
from docker.errors import DockerException, ImageNotFound

from infra.docker_provider import is_ours
from infra.docker_resources import OwnerProps
from millrace.common.errors import OperatorError
from millrace.plan import Plan
from millrace.providers.docker_hosts import container_name


def refuse_conflicts(plan: Plan, image: str) -> None:
    """Stops before the first resource is made when one of them couldn't be."""
    try:
        client = docker.from_env()
        client.images.get(image)
        in_the_way = [*_foreign_names(client, plan), *_overlaps(client, plan)]
        left_out = list(_data_left_out(client, plan))
    except ImageNotFound:
        raise OperatorError(f"there is no image {image}", "run `millrace setup`") from None
    except DockerException as error:
        raise OperatorError(
            f"the Docker engine doesn't answer: {error}", "start it, or run `make up`"
        ) from error
    environment = f"configs/environments/{plan.environment}.yaml"
    if in_the_way:
        raise OperatorError(
            "\n".join(in_the_way),
            f"remove or rename them, or give {environment} another name or subnet",
        )
    if left_out:
        raise OperatorError(
            "\n".join(left_out),
            f"put the hosts back into {environment}; or, when nobody needs their data any more, "
            "remove each host and its volumes: docker rm -f HOST, docker volume rm VOLUME",
        )


def _foreign_names(client: docker.DockerClient, plan: Plan) -> Iterator[str]:
    """Yields what has a name we need and isn't ours."""
    containers = {
        container_name(plan, name) for name in ("artifacts", *(h.name for h in plan.hosts))
    }
    wanted = {
        "container": containers,
        "network": {plan.cluster},
        "volume": _volumes(plan),
    }
    existing = {
        "container": [
            (c.name, c.labels) for c in client.containers.list(all=True, ignore_removed=True)
        ],
        "network": [(n.name, n.attrs["Labels"]) for n in client.networks.list()],
        "volume": [(v.name, v.attrs["Labels"]) for v in client.volumes.list()],
    }
    for kind, things in existing.items():
        for name, labels in things:
            if name in wanted[kind] and not is_ours(labels, _owner(plan)):
                yield f"a {kind} named {name} exists already and isn't Millrace's"


def _overlaps(client: docker.DockerClient, plan: Plan) -> Iterator[str]:
    subnet = IPv4Network(plan.network.subnet)
    for network in client.networks.list():
        if network.name == plan.cluster:
            continue
        for pool in (network.attrs["IPAM"] or {}).get("Config") or []:
            taken = ip_network(pool["Subnet"])
            if taken.version == subnet.version and taken.overlaps(subnet):
                yield f"subnet {subnet} overlaps {taken} of the Docker network {network.name}"


def _data_left_out(client: docker.DockerClient, plan: Plan) -> Iterator[str]:
    """Volumes of ours that the plan has no host for.

    The engine, too, refuses to remove a protected volume, but only after it removed the host.
    """
    for volume in client.volumes.list():
        if is_ours(volume.attrs["Labels"], _owner(plan)) and volume.name not in _volumes(plan):
            yield f"the volume {volume.name} holds data of a host that is no longer in the plan"


def _owner(plan: Plan) -> dict[str, Any]:
    return {**OwnerProps(cluster=plan.cluster, stack=plan.environment)}


def _volumes(plan: Plan) -> set[str]:
    return {volume.name for host in plan.hosts for volume in host.volumes}
