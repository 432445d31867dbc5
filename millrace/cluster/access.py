"""How hosts are entered, by people and by Ansible: always SSH; the way there is the provider's."""

from pathlib import Path

from millrace.plan import Plan
from millrace.providers import provider_of

# A host that was made again has a new host key at its old address. What says who answers there is
# the network: a bridge of this machine, or Session Manager, which checks the instance.
HOST_KEYS = ("-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null")


def user(plan: Plan) -> str:
    return provider_of(plan).user(plan)


def key_file(plan: Plan) -> Path:
    """The private key, relative to the repository."""
    return provider_of(plan).key_file(plan)


def tunnel_options(plan: Plan) -> tuple[str, ...]:
    """For ``ssh``: the way to hosts that can't be reached straight."""
    return provider_of(plan).ssh_options(plan)
