"""How hosts are entered, by people and by Ansible: always SSH, the way there differs."""

from pathlib import Path

from millrace.common.paths import REPO, STATE
from millrace.plan import Plan

USER = "millrace"
TUNNEL = REPO / "tools" / "ssm-tunnel"

# A host that was made again has a new host key at its old address. What says who answers there is
# the network: a bridge of this machine, or Session Manager, which checks the instance.
HOST_KEYS = ("-o", "StrictHostKeyChecking=no", "-o", "UserKnownHostsFile=/dev/null")


def user(plan: Plan) -> str:
    return plan.machines.user if plan.machines else USER


def key_file(plan: Plan) -> Path:
    """The private key, relative to the repository."""
    return Path(plan.machines.key if plan.machines else f"{STATE.name}/{plan.environment}/ssh_key")


def tunnel_options(plan: Plan) -> tuple[str, ...]:
    """For ``ssh``: on AWS through Session Manager, as no host there can be reached otherwise."""
    if plan.aws is None:
        return ()
    return ("-o", f"ProxyCommand={TUNNEL} {plan.aws.region} {plan.environment} %h %p")
