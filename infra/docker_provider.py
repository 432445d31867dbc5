"""Docker networks, volumes and containers as Pulumi resources.

A container here *is* a host: its root file system holds what Ansible installed, its volumes hold
data. So every property says plainly whether a change to it replaces the container (`HOST_REPLACES`)
or is made in place (`HOST_UPDATES`), and nothing else ever touches a running one.

The engine runs these providers in a process of its own. They are pickled into the stack's state
with every resource; because the classes can be imported there (`automation.engine_environment`
sees to that), only their *names* are pickled. Two things follow: a new version of this file shows
as no difference on existing resources, and classes must keep their names and take no arguments.
Numbers arrive as floats.
"""

import contextlib
import io
import tarfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import docker
from docker.errors import NotFound
from docker.models.containers import Container
from docker.types import IPAMConfig, Mount
from pulumi.dynamic import CreateResult, DiffResult, ReadResult, ResourceProvider, UpdateResult

Props = dict[str, Any]

PROVIDER_KEY = "__provider"
CLUSTER_LABEL = "millrace.cluster"
STACK_LABEL = "millrace.stack"
HOST_LABEL = "millrace.host"

# What a change of a property does to what exists, and why. A test keeps these tables complete.
OWNER_REPLACES = {"cluster": "in its labels", "stack": "in its labels"}
NETWORK_REPLACES = {
    **OWNER_REPLACES,
    "name": "its identity",
    "subnet": "Docker fixes it at creation",
    "gateway": "Docker fixes it at creation",
}
VOLUME_REPLACES = {**OWNER_REPLACES, "name": "its identity"}
HOSTS_FILE_REPLACES = {"path": "its identity"}
HOSTS_FILE_UPDATES = {"content": "written in place"}
CONTAINER_REPLACES = {
    **OWNER_REPLACES,
    "name": "its identity",
    "image": "a new root file system",
    "network": "its network was made anew",
    "network_name": "its network was made anew",
    "address": "other hosts know it by this address",
}
HOST_REPLACES = {
    **CONTAINER_REPLACES,
    "hostname": "Docker fixes it at creation",
    "hosts_file": "Docker fixes mounts at creation",
    "volumes": "Docker fixes mounts at creation",
    "sysctls": "Docker fixes kernel settings at creation",
}
HOST_UPDATES = {
    "memory": "a live container takes a new limit",
    "cpu_weight": "a live container takes a new share",
    "authorized_key": "one file",
    "state": "a stopped, paused or cut-off host is brought back as it is",
}
ARTIFACT_SERVER_REPLACES = {
    **CONTAINER_REPLACES,
    "directory": "Docker fixes mounts at creation",
    "port": "in its command line",
}
ARTIFACT_SERVER_UPDATES = {"state": "a stopped server is started again"}

NOBODY = "65534:65534"
STOP_SECONDS = 10
AUTHORIZED_KEYS = "home/millrace/.ssh/authorized_keys"
MIB = 1024 * 1024
CPU_SHARES = 1024  # of a container that nobody gave any


def labels(props: Props) -> dict[str, str]:
    return {CLUSTER_LABEL: props["cluster"], STACK_LABEL: props["stack"]}


def is_ours(found: Mapping[str, str] | None, props: Props) -> bool:
    """Returns whether the labels of something that exists already are those this stack would give
    it."""
    return labels(props).items() <= (found or {}).items()


class Provider(ResourceProvider):
    """Compares inputs with recorded state; subclasses say what a change replaces."""

    serialize_as_secret_always = False  # nothing secret in a class name: keeps the state readable
    replaces: ClassVar[Mapping[str, str]]

    def diff(self, _id: str, olds: Props, news: Props) -> DiffResult:
        changed = {k for k in news if k != PROVIDER_KEY and olds.get(k) != news[k]}
        return DiffResult(
            changes=bool(changed),
            replaces=sorted(changed & self.replaces.keys()),
            delete_before_replace=True,  # names and addresses can't be held twice
        )


class NetworkProvider(Provider):
    """Creating a network of ours that exists takes it over, as hosts may still be on it."""

    replaces = NETWORK_REPLACES

    def create(self, props: Props) -> CreateResult:
        client = docker.from_env()
        for left in client.networks.list(names=[f"^{props['name']}$"]):
            _refuse_strangers("network", left.name, left.attrs["Labels"], props)
            if left.attrs["IPAM"]["Config"] == [_subnet(props)]:
                return CreateResult(left.id, dict(props))
            left.remove()
        network = client.networks.create(
            props["name"],
            driver="bridge",
            ipam=IPAMConfig(pool_configs=[_subnet(props)]),
            labels=labels(props),
        )
        return CreateResult(network.id, dict(props))

    def read(self, id_: str, props: Props) -> ReadResult:
        try:
            docker.from_env().networks.get(id_)
        except NotFound:
            return ReadResult("", {})
        return ReadResult(id_, dict(props))

    def delete(self, id_: str, _props: Props) -> None:
        with contextlib.suppress(NotFound):
            docker.from_env().networks.get(id_).remove()


class VolumeProvider(Provider):
    """A host's data. Creating one that exists takes it over as it is, data included."""

    replaces = VOLUME_REPLACES

    def create(self, props: Props) -> CreateResult:
        client = docker.from_env()
        try:
            existing = client.volumes.get(props["name"])
            _refuse_strangers("volume", existing.name, existing.attrs["Labels"], props)
        except NotFound:
            client.volumes.create(props["name"], labels=labels(props))
        return CreateResult(props["name"], dict(props))

    def read(self, id_: str, props: Props) -> ReadResult:
        try:
            docker.from_env().volumes.get(id_)
        except NotFound:
            return ReadResult("", {})
        return ReadResult(id_, dict(props))

    def delete(self, id_: str, _props: Props) -> None:
        with contextlib.suppress(NotFound):
            docker.from_env().volumes.get(id_).remove()


class HostsFileProvider(Provider):
    """The name table that every host mounts as /etc/hosts; local's stand-in for private DNS.

    Always written in place: a bind mount follows the inode, so a new file under the same name would
    never be seen by running hosts.
    """

    replaces = HOSTS_FILE_REPLACES

    def create(self, props: Props) -> CreateResult:
        _write_in_place(Path(props["path"]), props["content"])
        return CreateResult(props["path"], dict(props))

    def read(self, id_: str, props: Props) -> ReadResult:
        path = Path(id_)
        if not path.is_file():
            return ReadResult("", {})
        return ReadResult(id_, {**props, "content": path.read_text()})

    def update(self, _id: str, _olds: Props, news: Props) -> UpdateResult:
        _write_in_place(Path(news["path"]), news["content"])
        return UpdateResult(dict(news))

    def delete(self, id_: str, _props: Props) -> None:
        Path(id_).unlink(missing_ok=True)


class ContainerProvider(Provider):
    """What hosts and the artifact server have in common: one network, one address, one state."""

    def options(self, props: Props) -> Props:
        """Returns what `docker create` gets besides name, image, address and labels."""
        raise NotImplementedError

    def settle(self, container: Container, props: Props) -> None:
        """Brings what can change in place to what the properties say."""

    def create(self, props: Props) -> CreateResult:
        client = docker.from_env()
        _remove_leftover(client, props)
        container = client.containers.create(
            props["image"],
            name=props["name"],
            network=props["network_name"],
            networking_config={
                props["network_name"]: client.api.create_endpoint_config(
                    ipv4_address=props["address"]
                )
            },
            **self.options(props),
        )
        try:
            self.settle(container, props)
            container.start()
        except BaseException:
            container.remove(force=True)  # the engine takes a failed create for nothing made
            raise
        return CreateResult(container.id, dict(props))

    def read(self, id_: str, props: Props) -> ReadResult:
        try:
            container = docker.from_env().containers.get(id_)
        except NotFound:
            return ReadResult("", {})
        return ReadResult(id_, {**props, **self.observe(container, props)})

    def observe(self, container: Container, props: Props) -> Props:
        """The properties that can drift, as they are."""
        return {"state": _state(container, props)}

    def update(self, id_: str, _olds: Props, news: Props) -> UpdateResult:
        container = docker.from_env().containers.get(id_)
        self.settle(container, news)
        _bring_back(container, news)
        return UpdateResult(dict(news))

    def delete(self, id_: str, _props: Props) -> None:
        try:
            container = docker.from_env().containers.get(id_)
            container.stop(timeout=STOP_SECONDS)
            container.remove(force=True)
        except NotFound:
            pass


class HostProvider(ContainerProvider):
    replaces = HOST_REPLACES

    def options(self, props: Props) -> Props:
        cgroups = Mount("/sys/fs/cgroup", "/sys/fs/cgroup", type="bind")
        names = Mount("/etc/hosts", props["hosts_file"], type="bind", read_only=True)
        data = [Mount(volume["path"], volume["name"]) for volume in props["volumes"]]
        return {
            "command": "/sbin/init",
            "hostname": props["hostname"],
            "labels": {**labels(props), HOST_LABEL: props["hostname"]},
            "environment": {"container": "docker"},
            "mounts": [cgroups, names, *data],
            "tmpfs": {"/run": "", "/run/lock": ""},
            "sysctls": props["sysctls"],
            # systemd needs its cgroups and mounts; the firewall needs nftables, operators jstack.
            "cap_add": ["SYS_ADMIN", "NET_ADMIN", "SYS_PTRACE"],
            "security_opt": ["seccomp=unconfined"],
            "cgroupns": "host",
            "stop_signal": "SIGRTMIN+3",  # systemd's orderly shutdown
            # A dead host stays dead until somebody starts it, as a machine would.
            "restart_policy": {"Name": "no"},
        }

    def settle(self, container: Container, props: Props) -> None:
        limit = int(props["memory"]) * MIB
        shares = int(props["cpu_weight"]) * CPU_SHARES
        container.update(mem_limit=limit, memswap_limit=limit, cpu_shares=shares)
        container.put_archive("/", _archive(AUTHORIZED_KEYS, props["authorized_key"]))

    def observe(self, container: Container, props: Props) -> Props:
        given = container.attrs["HostConfig"]
        return {
            **super().observe(container, props),
            "memory": given["Memory"] // MIB,
            "cpu_weight": (given["CpuShares"] or CPU_SHARES) // CPU_SHARES,
        }


class ArtifactServerProvider(ContainerProvider):
    """Where hosts get their distributions; local's stand-in for a cloud's artifact bucket."""

    replaces = ARTIFACT_SERVER_REPLACES

    def options(self, props: Props) -> Props:
        directory = Path(props["directory"])
        directory.mkdir(parents=True, exist_ok=True)
        return {
            "command": f"python3 -m http.server {int(props['port'])} --directory /srv",
            "labels": labels(props),
            "mounts": [Mount("/srv", str(directory), type="bind", read_only=True)],
            "user": NOBODY,
            "cap_drop": ["ALL"],
            "read_only": True,
            "init": True,
            "mem_limit": 64 * MIB,
            "restart_policy": {"Name": "unless-stopped"},
        }


def _refuse_strangers(kind: str, name: str, found: Mapping[str, str] | None, props: Props) -> None:
    if not is_ours(found, props):
        raise RuntimeError(f"a {kind} named {name} exists and isn't this stack's")


def _subnet(props: Props) -> dict[str, str]:
    return {"Subnet": props["subnet"], "Gateway": props["gateway"]}


def _remove_leftover(client: docker.DockerClient, props: Props) -> None:
    """Removes a container of ours that the state doesn't know: an interrupted `up` leaves one."""
    try:
        container = client.containers.get(props["name"])
    except NotFound:
        return
    _refuse_strangers("container", props["name"], container.labels, props)
    container.remove(force=True)


def _state(container: Container, props: Props) -> str:
    """Docker's word for the container's state, or `detached`: without its network or address."""
    endpoint = container.attrs["NetworkSettings"]["Networks"].get(props["network_name"]) or {}
    if (endpoint.get("IPAMConfig") or {}).get("IPv4Address") != props["address"]:
        return "detached"
    return container.status


def _bring_back(container: Container, props: Props) -> None:
    if _state(container, props) == "detached":
        network = container.client.networks.get(props["network"])
        if props["network_name"] in container.attrs["NetworkSettings"]["Networks"]:
            network.disconnect(container)
        network.connect(container, ipv4_address=props["address"])
    if container.status == "paused":
        container.unpause()
    container.start()  # nothing happens to a running one


def _write_in_place(path: Path, content: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(content)  # truncates; the inode stays


def _archive(path: str, content: str) -> bytes:
    """A tar with one file in its folder, root's and readable by all: what sshd trusts as a key."""
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w") as tar:
        folder = tarfile.TarInfo(str(Path(path).parent))
        folder.type, folder.mode = tarfile.DIRTYPE, 0o755
        tar.addfile(folder)
        data = content.encode()
        file = tarfile.TarInfo(path)
        file.mode, file.size = 0o644, len(data)
        tar.addfile(file, io.BytesIO(data))
    return buffer.getvalue()
