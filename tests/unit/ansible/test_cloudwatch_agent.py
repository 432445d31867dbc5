"""What CloudWatch's agent is told to ship, as its role renders it for hosts on AWS."""

import json
import re
from typing import Any

import pytest

from millrace.common.paths import ANSIBLE
from millrace.inventory import build_inventory
from millrace.plan import load_plan
from tests.playbooks import run_here

ROLE = ANSIBLE / "roles" / "cloudwatch_agent"
PLAN = load_plan("dev")


@pytest.fixture(scope="module")
def shipped(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """Host → its configuration."""
    folder = tmp_path_factory.mktemp("rendered")
    template = {
        "src": f"{ROLE}/templates/millrace.json.j2",
        "dest": f"{folder}/{{{{ inventory_hostname }}}}.json",
    }
    play = {
        "hosts": "worker-1,kafka-1",
        "vars_files": [f"{ROLE}/vars/main.yml"],
        "tasks": [{"ansible.builtin.template": template}],
    }
    run_here(build_inventory(PLAN, {}, artifacts="http://nowhere"), folder, **play)
    return {
        host: json.loads((folder / f"{host}.json").read_text()) for host in ("worker-1", "kafka-1")
    }


def test_everything_goes_to_the_group_that_pulumi_makes(shipped) -> None:
    assert PLAN.aws
    for host, config in shipped.items():
        assert config["agent"]["region"] == PLAN.aws.region
        for kind in config["logs"]["logs_collected"].values():
            for entry in kind["collect_list"]:
                assert entry["log_group_name"] == PLAN.aws.log_group
                assert entry["log_stream_name"].startswith(host)


def test_containers_logs_leave_the_hosts_that_run_some(shipped) -> None:
    def files(host: str) -> list[str]:
        kinds = shipped[host]["logs"]["logs_collected"]
        return [entry["file_path"] for entry in kinds["files"]["collect_list"]]

    assert files("kafka-1") == ["/var/log/millrace/*/*.log"]
    assert files("worker-1") == [*files("kafka-1"), "/var/lib/millrace/nodemanager/logs/*/*/std*"]


def test_a_stack_trace_is_one_event(shipped) -> None:
    """A line that begins with a space goes on with the one before it."""
    for entry in shipped["worker-1"]["logs"]["logs_collected"]["files"]["collect_list"]:
        begins = re.compile(entry["multi_line_start_pattern"])
        assert begins.search("2026-01-01 00:00:00 ERROR it failed")
        assert not begins.search("    at java.base/java.lang.Thread.run(Thread.java:840)")
