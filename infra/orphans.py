"""Everything with a stack's label, whether the engine knows of it or not.

Only `destroy(purge=True)` works this way: after a killed `up` or a lost state there may be things
that Pulumi has never heard of, and a purge must leave nothing.
"""

from concurrent.futures import ThreadPoolExecutor

import docker
from docker.models.containers import Container

from infra.docker_provider import STACK_LABEL


def remove_containers(stack: str) -> None:
    containers = docker.from_env().containers.list(all=True, filters=_labelled(stack))
    with ThreadPoolExecutor(max_workers=4) as pool:
        list(pool.map(_kill, containers))


def remove_networks_and_volumes(stack: str) -> None:
    client = docker.from_env()
    for network in client.networks.list(filters=_labelled(stack)):
        network.remove()
    for volume in client.volumes.list(filters=_labelled(stack)):
        volume.remove()


def _labelled(stack: str) -> dict[str, str]:
    return {"label": f"{STACK_LABEL}={stack}"}


def _kill(container: Container) -> None:
    container.remove(force=True)
