"""`docs/network.md`: each port, who may call it, and what the toolkit itself calls. Pure."""

from collections.abc import Iterator, Mapping, Sequence

from millrace.config import OUTSIDE, Component
from millrace.plan import Plan
from millrace.plan.reachability import Step

INTRODUCTION = """\
# Who may call which port

`clients` in `configs/components/` says for each port which services may call it, and which
clients from outside; `network.outside` of an environment says from which CIDRs those clients
come. Every environment enforces this statement: role `firewall` loads it into nftables on every
host, and on AWS the security groups are made of it, too. Hosts drop every other call without an
answer. A host always reaches its own ports, and accepts ICMP. The rules judge only the opening of
a connection: new rules cut no connection that is open. Ports are TCP unless the table says
otherwise. Rules are for groups of hosts: services that share hosts share what they may call.
`millrace docs` generates this page.

On a host, `nft list table inet edges` shows the rules, how many connections each has let in, and
how many packets were refused. Every rule is needed: `make test-all` takes one after the other
away from a running cluster and sees its client refused. It leaves out the rules that only a start
or a fault uses.

In a cluster that was made before hosts enforced this, drivers listen on ports of any number. Run
`make deploy` there first, then `make up`. The other way round, an executor that starts in between
can't reach its driver.

| port | service | who may, of the cluster | from outside |
|---:|---|---|---|
"""
ENVIRONMENTS = """
## From outside

| environment | operator | by way of | producers | readers |
|---|---|---|---|---|
"""
WAYS_IN = """
Without an edge host in between, operators call every port that the first table lets them call.
By way of an edge host (`network.way_in`) they reach only its sshd, and the edge hosts may call
the operator's ports. `millrace` then opens one SSH connection. As long as a command runs, the
operator's machine has each service's address a.b.c.d at 127.b.c.d, with the same port.
Operators enter other hosts through that connection as well. When the edge host dies, the next
one takes its place. Brokers have a listener for this way, which names those addresses to
clients. [Decision 22](adr/0022-operators-come-by-an-edge-host.md) says why.

On AWS operators enter hosts through Session Manager, whose agent on the host calls sshd there,
so SSH needs no CIDR. Readers come through the load balancer: the CIDRs are those of its HTTPS,
and hosts accept calls from its subnets.
"""
STEPS = """
## What commands and playbooks call

`configs/reachability.yaml` has these steps. A test checks that the edges of every environment
allow each of them.

| step | from | to |
|---|---|---|
"""


def network_page(
    components: Mapping[str, Component], plans: Sequence[Plan], steps: Sequence[Step]
) -> str:
    return "".join(
        [
            INTRODUCTION,
            *_lines([("22", "sshd", "–", "operator"), *_ports(components)]),
            ENVIRONMENTS,
            *_lines([_environment(plan) for plan in plans]),
            WAYS_IN,
            STEPS,
            *_lines([(step.step, step.client, ", ".join(step.to)) for step in steps]),
        ]
    )


def _ports(components: Mapping[str, Component]) -> Iterator[tuple[str, ...]]:
    numbers = [
        (port, port, name, key)
        for name, component in components.items()
        for key, port in component.ports.items()
    ] + [
        (span.first, span.last, name, key)
        for name, component in components.items()
        for key, span in component.port_ranges.items()
    ]
    for first, last, name, key in sorted(numbers):
        clients = components[name].clients[key]
        ports = str(first) if first == last else f"{first}–{last}"
        yield (
            f"{ports} and UDP" if key in components[name].udp else ports,
            f"{name}.{key}",
            ", ".join(c for c in clients if c not in OUTSIDE) or "–",
            ", ".join(c for c in clients if c in OUTSIDE) or "–",
        )


def _environment(plan: Plan) -> tuple[str, ...]:
    operator, *others = (", ".join(plan.network.outside[client]) or "–" for client in OUTSIDE)
    way = "an edge host" if plan.by_edge else "–"
    return (plan.environment, operator, way, *others)


def _lines(rows: Sequence[tuple[str, ...]]) -> list[str]:
    return [f"| {' | '.join(row)} |\n" for row in rows]
