"""Hadoop's files as their role renders them: where blocks are put, and who gets containers."""

import subprocess
from collections import Counter
from math import ceil, floor
from pathlib import Path
from xml.etree import ElementTree

import pytest

from millrace.common.paths import ANSIBLE
from millrace.inventory import build_inventory
from millrace.plan import Plan, load_plan
from tests.playbooks import run_here

HOST = "master-1"
ROLE = ANSIBLE / "roles" / "hadoop_config"
FILES = ("core-site.xml", "hdfs-site.xml", "yarn-site.xml", "capacity-scheduler.xml", "rack.sh")
SPREAD = "org.apache.hadoop.hdfs.server.blockmanagement.BlockPlacementPolicyRackFaultTolerant"
QUEUES = "yarn.scheduler.capacity.root"


@pytest.fixture(scope="module")
def plan() -> Plan:
    """Two workers in each of three zones."""
    return load_plan("prod")


@pytest.fixture(scope="module")
def rendered(plan: Plan, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("rendered")
    play = {
        "hosts": HOST,
        "vars_files": [f"{ROLE}/vars/main.yml"],
        "tasks": [
            {
                "ansible.builtin.template": {
                    "src": f"{ROLE}/templates/{name}.j2",
                    "dest": f"{folder}/{name}",
                }
            }
            for name in FILES
        ],
    }
    manifest = {"hadoop": {"version": "1", "file": "hadoop.tar", "sha256": "0" * 64}}
    run_here(build_inventory(plan, manifest, artifacts="http://nowhere"), folder, **play)
    return folder


def properties(file: Path) -> dict[str, str]:
    found = ElementTree.parse(file).getroot().iter("property")
    return {one.findtext("name", ""): one.findtext("value", "") for one in found}


def test_a_block_has_each_replica_in_a_zone_of_its_own(plan: Plan, rendered: Path) -> None:
    """The policy puts at most ceil(replicas / racks) into one rack."""
    workers = plan.hosts_of("datanode")
    script = ["sh", rendered / "rack.sh", *(worker.address for worker in workers)]
    racks = subprocess.run(script, capture_output=True, text=True, check=True).stdout.split()
    assert racks == [f"/{worker.zone}" for worker in workers]
    assert Counter(racks) == dict.fromkeys(["/a", "/b", "/c"], 2)
    hdfs = properties(rendered / "hdfs-site.xml")
    assert hdfs["dfs.block.replicator.classname"] == SPREAD
    assert ceil(int(hdfs["dfs.replication"]) / len(set(racks))) == 1
    core = properties(rendered / "core-site.xml")
    assert Path(core["net.topology.script.file.name"]).name == "rack.sh"


def test_queues_are_all_of_the_cluster_and_each_says_who_may_submit(
    plan: Plan, rendered: Path
) -> None:
    told = properties(rendered / "capacity-scheduler.xml")
    queues = told[f"{QUEUES}.queues"].split(",")
    assert sum(int(told[f"{QUEUES}.{queue}.capacity"]) for queue in queues) == 100
    # Nobody but by a queue's own list: one that lacks it would take what anybody submits.
    assert told[f"{QUEUES}.acl_submit_applications"] == " "
    allowed = {queue: told.get(f"{QUEUES}.{queue}.acl_submit_applications") for queue in queues}
    assert allowed == {"stream": plan.names.hdfs.user, "adhoc": "*", "default": None}
    assert plan.spark.rendered()["settings"]["spark-defaults.conf"]["spark.yarn.queue"] == "stream"


def test_operators_and_the_masters_administer_yarn(plan: Plan, rendered: Path) -> None:
    told = properties(rendered / "yarn-site.xml")
    assert told["yarn.acl.enable"] == "true"
    admins = told["yarn.admin.acl"].split(",")
    assert admins == ["root", plan.services["resourcemanager"].user]


def containers(plan: Plan) -> tuple[int, int]:
    """MiB and cores of one driver and its executors, as YARN rounds them up."""
    spark = plan.spark.settings.defaults
    least = plan.services["resourcemanager"].settings["yarn-site.xml"][
        "yarn.scheduler.minimum-allocation-mb"
    ]
    driver, executor = (ceil(size / least) * least for size in spark.container_mebibytes)
    return driver + spark.executors * executor, 1 + spark.executors * spark.executor_cores


def lent(plan: Plan, workers: int) -> tuple[int, int]:
    each = plan.services["nodemanager"].settings["yarn-site.xml"]
    return (
        workers * each["yarn.nodemanager.resource.memory-mb"],
        workers * each["yarn.nodemanager.resource.cpu-vcores"],
    )


def share(plan: Plan, queue: str) -> float:
    """The most that others can keep from it, or it from others."""
    told = plan.services["resourcemanager"].settings["capacity-scheduler.xml"]
    return told[f"yarn.scheduler.capacity.root.{queue}.capacity"] / 100


@pytest.mark.parametrize("environment", ["local", "test", "dev", "staging", "prod"])
def test_the_streams_queue_holds_who_leads_and_who_stands_by(environment: str) -> None:
    plan = load_plan(environment)
    drivers = plan.services["job_gateway"].settings["gateway.json"]["drivers"]
    there = lent(plan, len(plan.hosts_of("nodemanager")))
    for needed, all_of_it in zip(containers(plan), there, strict=True):
        most = floor(all_of_it * share(plan, "stream"))
        assert needed * drivers * len(plan.applications) <= most


@pytest.mark.parametrize("environment", ["local", "test", "dev", "staging", "prod"])
def test_a_worker_away_and_a_full_queue_of_others_leave_who_leads_its_executors(
    environment: str,
) -> None:
    plan = load_plan(environment)
    workers = len(plan.hosts_of("nodemanager"))
    for needed, left, all_of_it in zip(
        containers(plan), lent(plan, workers - 1), lent(plan, workers), strict=True
    ):
        assert needed * len(plan.applications) <= left - all_of_it * share(plan, "adhoc")
