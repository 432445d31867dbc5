"""What a new instance does by itself, so that Ansible can enter it: user, key, name, SSM agent."""

import json
from typing import Any

from millrace.plan import Host, Plan

USER = "millrace"


def user_data(plan: Plan, host: Host, region: str, authorized_key: str) -> str:
    """cloud-init's configuration. YAML, of which JSON is a part."""
    return "#cloud-config\n" + json.dumps(
        _configuration(plan, host, region, authorized_key), indent=1
    )


def _configuration(plan: Plan, host: Host, region: str, authorized_key: str) -> dict[str, Any]:
    # Debian's images come without the agent; AWS keeps it in a bucket of each region
    # (Systems Manager User Guide, "Manually installing SSM Agent on Debian Server").
    bucket = f"https://s3.{region}.amazonaws.com/amazon-ssm-{region}"
    agent = f"{bucket}/latest/debian_amd64/amazon-ssm-agent.deb"
    return {
        "hostname": host.name,
        "fqdn": f"{host.name}.{plan.cluster}.internal",
        "prefer_fqdn_over_hostname": False,
        "users": [
            {
                "name": USER,
                "shell": "/bin/bash",
                "sudo": "ALL=(ALL) NOPASSWD:ALL",
                "lock_passwd": True,
                "ssh_authorized_keys": [authorized_key],
            }
        ],
        "disable_root": True,
        "ssh_pwauth": False,
        "runcmd": [
            ["wget", "--tries=20", "--waitretry=5", "-qO", "/var/tmp/agent.deb", agent],
            ["dpkg", "--install", "/var/tmp/agent.deb"],
            ["systemctl", "enable", "--now", "amazon-ssm-agent"],
        ],
    }
