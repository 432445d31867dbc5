"""Where hosts are: zones and addresses."""

from collections.abc import Iterator, Mapping
from ipaddress import IPv4Address, IPv4Network

from millrace.config import ENTRANCE, Component, Environment
from millrace.plan.aws import private_subnet, subnet_problems
from millrace.plan.parts import DATA_ROOT, Endpoint, Host, NetworkPlan, Volume, unit

# Addresses of a group, of which the first is never used, in a network of LARGE addresses and more,
# as each zone's is on AWS, and in a smaller one. By nothing but the network: no host ever moves.
LARGE = 4096
LARGE_STRIDE, SMALL_STRIDE = 256, 10
# Addresses: .1 is the gateway, .2 the artifact server, .11 the first host of the first group.
ARTIFACTS_OFFSET = 2
ARTIFACTS_PORT = 8000


def plan_network(environment: Environment) -> NetworkPlan:
    subnet = environment.network.subnet
    outside = environment.network.outside.model_dump(mode="json")
    way_in = environment.network.way_in
    if environment.provider != "docker":
        return NetworkPlan(subnet=str(subnet), outside=outside, way_in=way_in)
    return NetworkPlan(
        subnet=str(subnet),
        outside=outside,
        way_in=way_in,
        gateway=str(_gateway(subnet)),
        artifacts=Endpoint(str(subnet.network_address + ARTIFACTS_OFFSET), ARTIFACTS_PORT),
    )


def problems(environment: Environment) -> Iterator[str]:
    """Says why operators couldn't get in, or hosts have no place on the network or no machine."""
    yield from _way_in_problems(environment)
    yield from subnet_problems(environment)
    if environment.machines is None:
        return
    machines = environment.machines.hosts
    wanted = {
        f"{group}-{index}"
        for group, settings in environment.groups.items()
        for index in range(1, settings.hosts + 1)
    }
    for host in sorted(wanted - machines.keys()):
        yield f"machines.hosts: no machine {host}, which groups ask for"
    for host in sorted(machines.keys() - wanted):
        yield f"machines.hosts.{host}: no group asks for it"
    seen: dict[IPv4Address, str] = {}
    mirrors: dict[str, str] = {}
    for host, machine in machines.items():
        if machine.address in seen:
            yield f"machines.hosts.{host}: {machine.address} is {seen[machine.address]}'s, too"
        seen[machine.address] = host
        mirror = str(machine.address).partition(".")[2]
        if environment.network.way_in == "edge" and mirror in mirrors:
            yield (
                f"machines.hosts.{host}: {machine.address} and {mirrors[mirror]}'s differ in their"
                " first byte alone; by way of an edge host they couldn't be told apart"
            )
        mirrors[mirror] = host
        if machine.zone not in environment.zones:
            yield f"machines.hosts.{host}: zone {machine.zone} isn't one of zones"


def _way_in_problems(environment: Environment) -> Iterator[str]:
    """On AWS the way in is Session Manager, which no firewall is asked about."""
    network = environment.network
    operator, gateway = network.outside.operator, _gateway(network.subnet)
    if environment.provider == "docker" and not any(gateway in cidr for cidr in operator):
        yield (
            f"network.outside.operator: must hold {gateway}, where this machine is on the hosts'"
            " network; the hosts would let nobody in"
        )
    here = network.outside.this_machine
    if here and (environment.provider != "docker" or here != [IPv4Network(gateway)]):
        yield (
            f"network.outside.this_machine: {', '.join(map(str, here))}; it may speak plain HTTP,"
            f" so it is {gateway}/32 where hosts are containers, and nobody elsewhere"
        )
    if environment.provider == "static" and not operator:
        yield "network.outside.operator: none; the hosts would let nobody in"
    entered = any(ENTRANCE in environment.services(group) for group in environment.groups)
    if network.way_in == "edge" and not entered:
        yield f"network.way_in: edge; operators come in where {ENTRANCE} runs, which is nowhere"


def _gateway(subnet: IPv4Network) -> IPv4Address:
    return subnet.network_address + 1


def place_hosts(
    cluster: str, environment: Environment, components: Mapping[str, Component]
) -> Iterator[Host]:
    """The hosts of each group, with the volumes of the services that keep data."""
    for number, (group_name, group) in enumerate(environment.groups.items(), start=1):
        for index in range(1, group.hosts + 1):
            host = f"{group_name}-{index}"
            zone, address = _place(environment, host, number, index)
            yield Host(
                name=host,
                group=group_name,
                zone=zone,
                index=index,
                address=str(address),
                memory=environment.memory(group_name),
                cpu_weight=group.cpu_weight,
                services=environment.services(group_name),
                volumes=[
                    Volume(
                        name=f"{cluster}-{host}-{unit(service)}",
                        path=f"{DATA_ROOT}/{unit(service)}",
                    )
                    for service in environment.services(group_name)
                    if service in components and components[service].data
                ],
            )


def _place(environment: Environment, host: str, group: int, index: int) -> tuple[str, IPv4Address]:
    """Zone and address: dealt to the zones in turn, unless the machine stands somewhere already."""
    if environment.machines:
        machine = environment.machines.hosts[host]
        return machine.zone, machine.address
    zone = environment.zones[(index - 1) % len(environment.zones)]
    return zone, _address(hosts_subnet(environment, zone), group, index)


def _address(subnet: IPv4Network, group: int, index: int) -> IPv4Address:
    # A stride per group: a host added to one group moves no other host's address.
    return subnet.network_address + group * group_stride(subnet) + index


def group_stride(subnet: IPv4Network) -> int:
    return LARGE_STRIDE if subnet.num_addresses >= LARGE else SMALL_STRIDE


def hosts_subnet(environment: Environment, zone: str) -> IPv4Network:
    """Returns the network that a zone's hosts are in."""
    return private_subnet(environment, zone) if environment.aws else environment.network.subnet
