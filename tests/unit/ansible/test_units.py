"""The units of JVMs, as role systemd_service renders them."""

import pytest

from millrace.common.paths import ANSIBLE
from millrace.inventory import build_inventory
from millrace.plan import load_plan
from tests.playbooks import run_here

HOST = "coord-1"
ROLE = ANSIBLE / "roles" / "systemd_service"


@pytest.fixture(scope="module")
def options(tmp_path_factory: pytest.TempPathFactory) -> list[str]:
    """With which a JVM of ZooKeeper is started."""
    folder = tmp_path_factory.mktemp("rendered")
    play = {
        "hosts": HOST,
        "vars_files": [f"{ROLE}/defaults/main.yml", f"{ROLE}/vars/main.yml"],
        "vars": {
            "systemd_service_name": "zookeeper",
            "systemd_service_exec": "/bin/true",
        },
        "tasks": [
            {
                "ansible.builtin.template": {
                    "src": f"{ROLE}/templates/unit.service.j2",
                    "dest": f"{folder}/unit",
                }
            }
        ],
    }
    manifest = {"zookeeper": {"version": "1", "file": "zookeeper.tar", "sha256": "0" * 64}}
    run_here(
        build_inventory(load_plan("local"), manifest, artifacts="http://nowhere"), folder, **play
    )
    begin = 'Environment="JAVA_OPTS='
    (line,) = [s for s in (folder / "unit").read_text().splitlines() if s.startswith(begin)]
    return line.removeprefix(begin).removesuffix('"').split()


def test_a_jvm_out_of_memory_leaves_its_heap_where_there_is_room_and_ends(options) -> None:
    assert "-XX:+ExitOnOutOfMemoryError" in options
    assert "-XX:+HeapDumpOnOutOfMemoryError" in options
    assert "-XX:HeapDumpPath=/var/lib/millrace/zookeeper/heap.hprof" in options


def test_collections_are_logged_in_files_that_are_bounded(options) -> None:
    (log,) = [option for option in options if option.startswith("-Xlog:gc")]
    assert "file=/var/log/millrace/zookeeper/gc.log" in log
    assert "filecount=" in log
    assert "filesize=" in log


@pytest.mark.parametrize("environment", ["staging", "prod"])
def test_a_heap_of_gigabytes_has_its_collector_named(environment: str) -> None:
    """Java would choose by the host's cores and memory, and differently on another instance."""
    plan = load_plan(environment)
    shared = {"hadoop": plan.hadoop.jvm}
    flags = {
        name: " ".join(service.jvm + shared.get(service.distribution or "", [])).split()
        for name, service in plan.services.items()
        if (service.memory.heap or 0) >= 1024
    }
    collectors = {
        name: [flag for flag in of_one if flag.endswith("GC")] for name, of_one in flags.items()
    }
    assert len(collectors) >= 7
    assert {name for name, found in collectors.items() if found != ["-XX:+UseG1GC"]} == set()


def test_no_folder_is_left_open(options) -> None:
    assert [option for option in options if "{" in option] == []
