"""Hosts that are instances on AWS, which no network leads to: they are entered by their API."""

import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

from millrace.common.paths import REPO
from millrace.plan import Plan
from millrace.providers import OPERATOR, HostControl, no_control, own_key_file, refuse

# What is refused, by a policy or as it would remove data, is refused before all else.
PREVIEWS = True
TUNNEL = REPO / "tools" / "ssm-tunnel"
TOOLS = ("aws", "session-manager-plugin")


def check_machine(plan: Plan) -> str:
    refuse(list(_problems()))
    return f"this machine can make and enter the hosts of {plan.cluster}"


def _problems() -> Iterator[str]:
    missing = [tool for tool in TOOLS if not shutil.which(tool)]
    for tool in missing:
        yield f"{tool} is missing: hosts on AWS are entered by it (docs/aws.md)"
    if "aws" not in missing:
        asked = subprocess.run(
            ["aws", "sts", "get-caller-identity"], capture_output=True, text=True
        )
        if asked.returncode:
            yield f"AWS knows no credentials of this shell: {asked.stderr.strip()}"


def user(plan: Plan) -> str:
    return OPERATOR


def key_file(plan: Plan) -> Path:
    return own_key_file(plan)


def ssh_options(plan: Plan) -> tuple[str, ...]:
    """Leads SSH through Session Manager."""
    assert plan.aws, "every plan of this provider has it"
    return ("-o", f"ProxyCommand={TUNNEL} {plan.aws.region} {plan.environment} %h %p")


def control(plan: Plan) -> HostControl:
    raise no_control(plan)
