"""`local`: the plan's hosts as Docker containers on one machine."""

from dataclasses import dataclass
from pathlib import Path

from pulumi import ComponentResource, Output, ResourceOptions

from infra.docker_resources import (
    ArtifactServer,
    ContainerProps,
    Host,
    HostsFile,
    MountProps,
    Network,
    OwnerProps,
    Volume,
)
from millrace.plan import Host as PlannedHost
from millrace.plan import Plan
from millrace.providers.docker_hosts import container_name


@dataclass(frozen=True)
class LocalClusterArgs:
    plan: Plan
    image: str
    authorized_key: str
    hosts_file: Path
    artifacts: Path


class LocalCluster(ComponentResource):
    """Network, name table, artifact server, and each host with its data volumes."""

    addresses: dict[str, Output[str]]

    def __init__(
        self, name: str, args: LocalClusterArgs, opts: ResourceOptions | None = None
    ) -> None:
        super().__init__("millrace:local:Cluster", name, None, opts)
        self._args = args
        self._child = ResourceOptions(parent=self)
        self._owner = OwnerProps(cluster=args.plan.cluster, stack=args.plan.environment)
        self._network = self._make_network()
        self._hosts_file = self._make_hosts_file()
        self._make_artifact_server()
        self.addresses = {host.name: self._make_host(host).address for host in args.plan.hosts}
        self.register_outputs({"addresses": self.addresses})

    def _make_network(self) -> Network:
        plan = self._args.plan
        assert plan.network.gateway, "every plan for Docker has one"
        return Network(
            "network",
            {
                **self._owner,
                "name": plan.cluster,
                "subnet": plan.network.subnet,
                "gateway": plan.network.gateway,
            },
            self._child,
        )

    def _make_hosts_file(self) -> HostsFile:
        args = self._args
        return HostsFile(
            "hosts-file",
            {"path": str(args.hosts_file), "content": hosts_file_content(args.plan)},
            self._child,
        )

    def _make_artifact_server(self) -> None:
        network = self._args.plan.network
        assert network.artifacts, "every plan for Docker has one"
        ArtifactServer(
            "artifacts",
            {
                **self._container("artifacts", network.artifacts.host),
                "directory": str(self._args.artifacts),
                "port": network.artifacts.port,
            },
            self._child,
        )

    def _make_host(self, host: PlannedHost) -> Host:
        args = self._args
        return Host(
            host.name,
            {
                **self._container(host.name, host.address),
                "hostname": host.name,
                "memory": host.memory,
                "cpu_weight": host.cpu_weight,
                "hosts_file": self._hosts_file.path,
                "authorized_key": args.authorized_key,
                "volumes": self._make_volumes(host),
                "sysctls": network_settings(args.plan),
            },
            self._child,
        )

    def _make_volumes(self, host: PlannedHost) -> list[MountProps]:
        # Protected: the engine refuses to remove data, whatever makes it want to. Only
        # `automation.destroy(purge=True)` lifts that.
        keep = ResourceOptions.merge(self._child, ResourceOptions(protect=True))
        return [
            MountProps(
                name=Volume(volume.name, {**self._owner, "name": volume.name}, keep).name,
                path=volume.path,
            )
            for volume in host.volumes
        ]

    def _container(self, name: str, address: str) -> ContainerProps:
        return ContainerProps(
            **self._owner,
            name=container_name(self._args.plan, name),
            image=self._args.image,
            network=self._network.id,
            network_name=self._args.plan.cluster,
            address=address,
            state="running",
        )


def network_settings(plan: Plan) -> dict[str, str]:
    """Kernel settings that a container has of its own. `/proc/sys` is read-only inside."""
    tuned = plan.base.settings["sysctl.conf"]
    return {key: str(value) for key, value in tuned.items() if key.startswith("net.")}


def hosts_file_content(plan: Plan) -> str:
    """Returns every host's name, so that even a dead one still resolves."""
    names = [("127.0.0.1", "localhost"), ("::1", "ip6-localhost ip6-loopback")]
    names += [(host.address, host.name) for host in plan.hosts]
    return "".join(f"{address}\t{name}\n" for address, name in names)
