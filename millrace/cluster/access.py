"""How hosts are entered, by people and by Ansible: always SSH; the way there is the provider's, or
leads by an edge host."""

import os
import shlex
import tempfile
from pathlib import Path

from millrace.common.paths import REPO
from millrace.config import ENTRANCE
from millrace.plan import Host, Plan
from millrace.providers import provider_of

# A host that was made again has a new host key at its old address. What says who answers there is
# the network: a bridge of this machine, or Session Manager, which checks the instance.
HOST_KEYS = ("-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null")
CONNECT_SECONDS = 4  # a dead host answers nothing
# A connection is given up as soon as its host is silent.
SILENCE = ("-o", "ServerAliveInterval=2", "-o", "ServerAliveCountMax=2")


def user(plan: Plan) -> str:
    return provider_of(plan).user(plan)


def key_file(plan: Plan) -> Path:
    """Returns the private key's file, relative to the repository."""
    return provider_of(plan).key_file(plan)


def way_in(plan: Plan, host: Host) -> tuple[str, ...]:
    """For ``ssh``: the way to a host that can't be reached straight.

    By an edge host it leads through the connection that `tunnel` shares, as long as there is one.
    """
    if not leads_by_edge(plan, host):
        return provider_of(plan).ssh_options(plan)
    entrance = target(plan, plan.hosts_of(ENTRANCE)[0])
    shared = ("-o", f"ControlPath={shared_socket(plan)}")
    through = ("ssh", *entry(plan), *shared, "-W", "%h:%p", entrance)
    return ("-o", f"ProxyCommand={shlex.join(through)}")


def leads_by_edge(plan: Plan, host: Host) -> bool:
    """Returns whether calls go by an edge host: a provider's own way leads to every host."""
    own = provider_of(plan).ssh_options(plan)
    return plan.by_edge and not own and ENTRANCE not in host.services


def entry(plan: Plan) -> tuple[str, ...]:
    """For ``ssh``: the stack's own key, and nobody to be asked."""
    limits = ("BatchMode=yes", "LogLevel=ERROR", f"ConnectTimeout={CONNECT_SECONDS}")
    options = tuple(word for limit in limits for word in ("-o", limit))
    return ("-i", str(REPO / key_file(plan)), *options, *SILENCE, *HOST_KEYS)


def target(plan: Plan, host: Host) -> str:
    return f"{user(plan)}@{host.address}"


def sockets() -> Path:
    """The folder of the connections that are shared; short, as the path of a socket has to be."""
    folder = Path(tempfile.gettempdir()) / f"millrace-{os.getuid()}"
    folder.mkdir(mode=0o700, exist_ok=True)
    return folder


def shared_socket(plan: Plan) -> Path:
    """Returns the socket of the one connection to an edge host, where there is no other way in."""
    return sockets() / plan.cluster
