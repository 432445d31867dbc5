"""How hosts are entered, for each provider."""

import subprocess
from typing import Any

from millrace.cluster.access import key_file, user
from millrace.cluster.ssh import ssh_command
from millrace.config import THIS_MACHINE
from millrace.inventory import build_inventory
from millrace.plan import load_plan
from millrace.providers.aws import TUNNEL

MANIFEST = {"store": {"version": "1", "file": "store-1.tar", "sha256": "0" * 64}}


def test_hosts_of_local_are_entered_straight():
    plan = load_plan("local")
    command = ssh_command(plan, plan.host("kafka-1"))
    assert command[-1] == "millrace@198.18.0.21"
    assert not [part for part in command if "ProxyCommand" in part]


def test_hosts_on_aws_are_entered_through_session_manager():
    plan = load_plan("dev")
    command = ssh_command(plan, plan.host("kafka-1"))
    assert command[-1] == "millrace@10.64.2.1"
    assert f"ProxyCommand={TUNNEL} us-east-1 dev %h %p" in command


def test_the_tunnel_finds_the_instance_that_has_the_address_now(tmp_path):
    calls = tmp_path / "calls"
    aws = tmp_path / "aws"
    aws.write_text(f'#!/bin/sh\necho "$@" >> {calls}\n[ "$1" = ec2 ] && echo i-0123 || true\n')
    aws.chmod(0o755)
    path = {"PATH": f"{tmp_path}:/usr/bin:/bin"}
    subprocess.run([TUNNEL, "us-east-1", "dev", "10.64.2.1", "22"], env=path, check=True)
    asked, started = calls.read_text().splitlines()
    assert "Name=private-ip-address,Values=10.64.2.1" in asked
    assert "Name=tag:millrace.stack,Values=dev" in asked
    assert "--target i-0123 --document-name AWS-StartSSHSession" in started


def test_a_host_that_is_gone_is_named(tmp_path):
    aws = tmp_path / "aws"
    aws.write_text("#!/bin/sh\n")
    aws.chmod(0o755)
    done = subprocess.run(
        [TUNNEL, "us-east-1", "dev", "10.64.2.1", "22"],
        env={"PATH": f"{tmp_path}:/usr/bin:/bin"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 1
    assert "no running instance of dev has the address 10.64.2.1" in done.stderr


def test_machines_of_your_own_are_entered_as_their_list_says():
    plan = load_plan("static")
    assert (user(plan), str(key_file(plan))) == ("millrace", ".millrace/local/ssh_key")


def test_static_differs_from_local_in_how_hosts_came_to_be_and_in_nothing_else():
    local, static = (build_inventory(load_plan(name), MANIFEST) for name in ("local", "static"))
    assert local.keys() == static.keys()
    # Nothing leaves the machine of `local`, so it may speak plain HTTP.
    plain, none = (plain_http(found) for found in (local, static))
    assert plain == {"http", THIS_MACHINE}
    assert none == {"https"}
    assert local["_meta"] == static["_meta"]
    mine, theirs = (found["all"]["vars"]["millrace"] for found in (local, static))
    assert theirs.pop("provider") == "static"
    named = {"environment", "cluster", "digest", THIS_MACHINE}
    assert {key for key in mine if mine[key] != theirs[key]} == named


def plain_http(inventory: dict[str, Any]) -> set[str]:
    """Takes out how pages are linked to, and which clients need no TLS; returns what was there."""
    hosts = inventory["_meta"]["hostvars"].values()
    links = [host.pop("millrace_page") for host in hosts if "millrace_page" in host]
    clients = {THIS_MACHINE for h in hosts if h["firewall_clients"].pop(THIS_MACHINE, None)}
    return {link.partition(":")[0] for link in links} | clients
