"""How nodes of Cassandra are started, what their file says, and how tables are compacted alike."""

import shutil
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import yaml

from millrace.common.paths import ANSIBLE
from millrace.plan import load_plan
from tests.playbooks import run_here, templated
from tests.unit.role_modules import module_of_role

TASKS = ANSIBLE / "roles" / "cassandra" / "tasks"
FOUNDERS, NEWCOMERS = ["c1", "c2", "c3"], ["c4", "c5"]


def in_turn(events: list[str]) -> bool:
    """Each newcomer has joined before the next one starts; which is first, Ansible decides."""
    first = [event.split()[1] for event in events[::2]]
    turns = [f"{what} {host}" for host in first for what in ("start", "joined")]
    return sorted(first) == NEWCOMERS and events == turns


def started(folder: Path, there: list[str]) -> list[str]:
    """What happens to the nodes in turn, where these have run before."""
    for name in ("ring.yml", "join.yml"):
        shutil.copy(TASKS / name, folder)
    log = folder / "log"
    (folder / "service.yml").write_text(
        yaml.safe_dump(
            [{"ansible.builtin.shell": f"echo start {{{{ inventory_hostname }}}} >> {log}"}]
        )
    )
    for host in there:
        (folder / host / "data" / "system").mkdir(parents=True)
    hosts = FOUNDERS + NEWCOMERS
    variables: dict[str, Any] = {
        "cassandra_data": f"{folder}/{{{{ inventory_hostname }}}}",
        "cassandra_is_founder": f"{{{{ inventory_hostname in {FOUNDERS} }}}}",
        "cassandra_plan": {"hosts": hosts},
        "cassandra_join_minutes": 1,
        "cassandra_joined_check": f"sh -c 'echo joined {{{{ inventory_hostname }}}} >> {log}'",
    }
    run_here(
        {"all": {"hosts": hosts, "vars": variables}, "_meta": {"hostvars": {}}},
        folder,
        hosts="all",
        tasks=[{"ansible.builtin.import_tasks": str(folder / "ring.yml")}],
    )
    return log.read_text().splitlines()


def test_a_ring_is_founded_at_once_and_then_joined_by_one_node_after_the_other(tmp_path) -> None:
    events = started(tmp_path, there=[])
    assert {*events[:3]} == {f"start {host}" for host in FOUNDERS}
    assert in_turn(events[3:])


def test_newcomers_have_joined_before_the_ring_that_is_there_is_touched(tmp_path) -> None:
    events = started(tmp_path, there=FOUNDERS)
    assert in_turn(events[:4])
    assert {*events[4:]} == {f"start {host}" for host in FOUNDERS}


def test_nobody_waits_for_a_ring_that_is_whole(tmp_path) -> None:
    hosts = FOUNDERS + NEWCOMERS
    assert sorted(started(tmp_path, there=hosts)) == [f"start {host}" for host in hosts]


def test_a_setting_with_dots_stands_within_another(tmp_path) -> None:
    settings = {"a.b.d": "1h", "num_tokens": 4, "a.c": False, "a.b.c": 2, "ab.c": [3]}
    text = templated(
        "cassandra",
        "cassandra.yaml",
        load_plan("local"),
        tmp_path,
        {
            "cassandra_seeds": ["cassandra-1"],
            "cassandra_is_replaced": False,
            "cassandra_is_founder": False,
            "cassandra_address": "198.18.0.1",
            "cassandra_plan": {
                "ports": {"storage": 1, "native": 2},
                "paths": {"data": "/data"},
                "settings": {"cassandra.yaml": settings},
            },
        },
    )
    content = yaml.safe_load(text)
    assert content["a"] == {"b": {"c": 2, "d": "1h"}, "c": False}
    assert content["ab"] == {"c": [3]}
    assert content["num_tokens"] == 4


LEVELED = {"class": "UnifiedCompactionStrategy", "scaling_parameters": "L10"}


@pytest.fixture(scope="module")
def module() -> ModuleType:
    return module_of_role("job_gateway", "cassandra_schema")


def test_each_table_of_ours_is_compacted_alike_and_no_other(module: ModuleType) -> None:
    there = {
        ("ours", "as_it_should_be"): LEVELED | {"max_threshold": "32"},
        ("ours", "of_an_older_version"): {"class": "SizeTieredCompactionStrategy"},
        ("ours", "Of_a_job"): LEVELED | {"scaling_parameters": "T4"},
        ("system_auth", "roles"): {"class": "SizeTieredCompactionStrategy"},
    }
    assert list(module.recompactions({"ours": "", "ours.traffic": ""}, there, LEVELED)) == [
        f'ALTER TABLE ours."{table}" WITH compaction = {LEVELED}'
        for table in ("of_an_older_version", "Of_a_job")
    ]
