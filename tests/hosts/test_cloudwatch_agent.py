"""CloudWatch's agent on a container, with a stand-in of AWS's package.

It shows what the role does: nothing is installed but what the digest names, and the unit can read
the journal, and write nothing but its own. What the agent does isn't shown, nor that it reads
what services keep to themselves: Docker gives no container the capability for it.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from docker.models.containers import Container

from millrace.inventory import build_inventory
from millrace.plan import Plan, load_plan
from tests.containers import on
from tests.hosts.bare import bare_host, inventory_with
from tests.playbooks import Recap, changed, run_playbook, written

NAME = "worker-1"
AGENT = "cloudwatch_agent"
UNIT = "cloudwatch-agent"
HOME = "/opt/aws/amazon-cloudwatch-agent"
PACKAGE = "/srv/agent.deb"
# Tells in its own folder what it may do, and goes on running.
PROGRAM = f"""#!/bin/sh
cd {HOME}/logs || exit 1
journalctl --quiet --lines 1 > journal
touch /etc/written /var/log/millrace/written 2> refused
touch told
exec sleep infinity
"""
MADE = f"""set -e
mkdir -p /srv/agent/DEBIAN /srv/agent{HOME}/bin /srv/agent{HOME}/logs
printf '%s\\n' 'Package: amazon-cloudwatch-agent' 'Version: 1' 'Architecture: all' \
  'Maintainer: nobody' 'Description: a stand-in' > /srv/agent/DEBIAN/control
printf '%s' "$1" > /srv/agent{HOME}/bin/start-amazon-cloudwatch-agent
chmod 0755 /srv/agent{HOME}/bin/start-amazon-cloudwatch-agent
dpkg-deb --build /srv/agent {PACKAGE} > /dev/null
sha256sum {PACKAGE} | cut -d ' ' -f 1
"""


@pytest.fixture
def host(plan: Plan, tmp_path: Path) -> Iterator[Container]:
    with bare_host(plan, tmp_path) as made:
        yield made


def on_aws(plan: Plan, host: Container) -> dict[str, Any]:
    """The plan's inventory, with what `dev` says of the agent."""
    inventory = inventory_with(plan, host, NAME)
    dev = build_inventory(load_plan("dev"), {}, artifacts="http://nowhere")["all"]["vars"][
        "millrace"
    ]
    known = inventory["all"]["vars"]["millrace"]
    known |= {name: dev[name] for name in ("region", "log_group")}
    known["services"][AGENT] = dev["services"][AGENT] | {"hosts": [NAME]}
    inventory["_meta"]["hostvars"][NAME]["millrace_host"]["services"].append(AGENT)
    return inventory


def converge(plan: Plan, host: Container, folder: Path, sha256: str) -> Recap:
    playbook = folder / "agent.yml"
    playbook.write_text(json.dumps([{"hosts": NAME, "become": True, "roles": ["base", AGENT]}]))
    package = {"version": "1", "sha256": sha256}
    variables = {f"{AGENT}_package": package, f"{AGENT}_url": f"file://{PACKAGE}"}
    return run_playbook(
        playbook,
        "-i",
        written(on_aws(plan, host), folder),
        "--extra-vars",
        json.dumps(variables),
    )


@pytest.mark.extended
def test_it_reads_the_journal_and_writes_its_own(
    plan: Plan, host: Container, tmp_path: Path
) -> None:
    sha256 = on(host, MADE, PROGRAM)
    with pytest.raises(AssertionError, match="1 computed checksum did NOT match"):
        converge(plan, host, tmp_path, "0" * 64)
    assert "no packages found" in on(host, "dpkg-query --show amazon-cloudwatch-agent || true")

    assert changed(converge(plan, host, tmp_path, sha256)) != {}
    assert on(host, f"systemctl is-active {UNIT}") == "active"
    assert on(host, f"ls {HOME}/etc/amazon-cloudwatch-agent.d") == "millrace.json"
    on(host, f"until [ -e {HOME}/logs/told ]; do sleep 0.1; done")
    may = on(host, f"systemctl show --property=CapabilityBoundingSet --value {UNIT}")
    assert may == "cap_dac_read_search"
    assert on(host, f"cat {HOME}/logs/journal")
    assert on(host, f"cat {HOME}/logs/refused").count("Read-only file system") == 2

    assert changed(converge(plan, host, tmp_path, sha256)) == {}
