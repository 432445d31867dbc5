"""Who talks to whom: the one statement that every environment's firewalls are made of. Pure."""

from collections import defaultdict
from collections.abc import Mapping
from itertools import product
from typing import Literal

from millrace.config import ENTRANCE, OPERATOR, OUTSIDE, Component, Environment
from millrace.plan.parts import Model

SSH = 22

Protocol = Literal["tcp", "udp"]


class Edge(Model):
    """``client`` may call the ports first to last of the hosts of ``server``, by ``protocol``.

    ``server`` is a group of hosts; ``client`` is one, too, or one of `OUTSIDE`. ``purpose`` names
    what listens there: ``service.port`` each, or ``ssh``.
    """

    client: str
    server: str
    protocol: Protocol
    first: int
    last: int
    purpose: str

    @property
    def name(self) -> str:
        port = self.first if self.protocol == "tcp" else f"{self.first}-{self.protocol}"
        return f"{self.server}-{port}-from-{self.client}"

    @property
    def ports(self) -> str:
        return str(self.first) if self.first == self.last else f"{self.first}-{self.last}"


def edges(environment: Environment, components: Mapping[str, Component]) -> list[Edge]:
    """From the components' ``clients``, and the operator's way in; nothing else is let through.

    A group's hosts all run the same services, so nothing finer than groups can be told apart.
    """
    servers: dict[str, list[str]] = defaultdict(list)
    for name in environment.groups:
        for service in environment.services(name):
            servers[service].append(name)
    callers = servers | {client: [client] for client in OUTSIDE}
    by_edge = environment.network.way_in == "edge"
    if by_edge:
        callers[OPERATOR] = servers[ENTRANCE]
    purposes: dict[tuple[str, str, Protocol, int, int], list[str]] = defaultdict(list)
    for name in servers[ENTRANCE] if by_edge else environment.groups:
        purposes[OPERATOR, name, "tcp", SSH, SSH].append("ssh")
    # On AWS Session Manager's agent, on each host itself, opens the connection.
    if by_edge and environment.aws is None:
        others = [name for name in environment.groups if name not in servers[ENTRANCE]]
        for client, name in product(servers[ENTRANCE], others):
            purposes[client, name, "tcp", SSH, SSH].append("ssh")
    for service, names in sorted(servers.items()):
        component = components[service]
        for port, (first, last) in _ports(component).items():
            clients = {name for c in component.clients[port] for name in callers.get(c, [])}
            for client, server, protocol in product(clients, names, _protocols(component, port)):
                purposes[client, server, protocol, first, last].append(f"{service}.{port}")
    return [
        Edge(
            client=client,
            server=server,
            protocol=protocol,
            first=first,
            last=last,
            purpose=", ".join(names),
        )
        for (client, server, protocol, first, last), names in sorted(purposes.items())
    ]


def _protocols(component: Component, port: str) -> list[Protocol]:
    return ["tcp", "udp"] if port in component.udp else ["tcp"]


def _ports(component: Component) -> dict[str, tuple[int, int]]:
    single = {name: (port, port) for name, port in component.ports.items()}
    return single | {name: (r.first, r.last) for name, r in component.port_ranges.items()}
