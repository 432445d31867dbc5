"""The resources that `docker_provider` makes, with the properties each one takes."""

from typing import TypedDict

from pulumi import Input, Output, ResourceOptions
from pulumi.dynamic import Resource

from infra.docker_provider import (
    ArtifactServerProvider,
    HostProvider,
    HostsFileProvider,
    NetworkProvider,
    VolumeProvider,
)


class OwnerProps(TypedDict):
    cluster: str
    stack: str


class NetworkProps(OwnerProps):
    name: str
    subnet: str
    gateway: str


class VolumeProps(OwnerProps):
    name: str


class HostsFileProps(TypedDict):
    path: str
    content: str


class ContainerProps(OwnerProps):
    name: str
    image: str
    network: Input[str]  # Docker's id: a network made anew replaces its containers
    network_name: str
    address: str
    state: str


class MountProps(TypedDict):
    name: Input[str]
    path: str


class HostProps(ContainerProps):
    hostname: str
    memory: int  # MiB
    cpu_weight: int  # 1 is what Docker gives each container
    hosts_file: Input[str]
    authorized_key: str
    volumes: list[MountProps]
    sysctls: dict[str, str]


class ArtifactServerProps(ContainerProps):
    directory: str
    port: int


class Network(Resource, module="millrace", name="Network"):
    def __init__(self, name: str, props: NetworkProps, opts: ResourceOptions) -> None:
        super().__init__(NetworkProvider(), name, {**props}, opts)


class Volume(Resource, module="millrace", name="Volume"):
    name: Output[str]

    def __init__(self, name: str, props: VolumeProps, opts: ResourceOptions) -> None:
        super().__init__(VolumeProvider(), name, {**props}, opts)


class HostsFile(Resource, module="millrace", name="HostsFile"):
    path: Output[str]

    def __init__(self, name: str, props: HostsFileProps, opts: ResourceOptions) -> None:
        super().__init__(HostsFileProvider(), name, {**props}, opts)


class Host(Resource, module="millrace", name="Host"):
    address: Output[str]

    def __init__(self, name: str, props: HostProps, opts: ResourceOptions) -> None:
        super().__init__(HostProvider(), name, {**props}, opts)


class ArtifactServer(Resource, module="millrace", name="ArtifactServer"):
    def __init__(self, name: str, props: ArtifactServerProps, opts: ResourceOptions) -> None:
        super().__init__(ArtifactServerProvider(), name, {**props}, opts)
