"""The roles' templates, rendered by Ansible from the plan, are what the programs read."""

import json
from pathlib import Path
from typing import Any

import pytest
from millrace_api.settings import Settings as ApiSettings
from millrace_gateway import settings as gateway
from millrace_gateway.submit import deployment
from millrace_jobs import config, contract

from millrace.common.paths import ANSIBLE
from millrace.inventory import build_inventory
from millrace.inventory import deployment as inventory_deployment
from millrace.plan import Plan, load_plan
from tests.playbooks import run_here

HOST = "edge-2"
MANIFEST = {"spark": {"version": "1", "file": "spark.tar.gz", "sha256": "0"}}
ROLES = ("hadoop_config", "spark", "insight_api", "job_gateway")
APPLICATION = {
    "job_gateway_application": "insights",
    "__job_gateway_packages": {"stdout": '{"jobs": {"digest": "0"}}'},
    "job_gateway_release": "",
}


@pytest.fixture(scope="module")
def plan() -> Plan:
    return load_plan("local")


@pytest.fixture(scope="module")
def rendered(plan: Plan, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("rendered")
    application = "{{ job_gateway_content | combine({'version': job_gateway_version}) | to_json }}"
    tasks: list[dict[str, Any]] = [
        _template("job_gateway", "gateway.json", folder),
        _template("insight_api", "config.json", folder),
        {"ansible.builtin.copy": {"content": application, "dest": f"{folder}/insights.json"}},
    ]
    play = {
        "hosts": HOST,
        "vars_files": [f"{ANSIBLE}/roles/{role}/vars/main.yml" for role in ROLES],
        "vars": APPLICATION,
        "tasks": tasks,
    }
    run_here(build_inventory(plan, MANIFEST, artifacts="http://nowhere"), folder, **play)
    return folder


def _template(role: str, name: str, folder: Path) -> dict[str, Any]:
    source = f"{ANSIBLE}/roles/{role}/templates/{name}.j2"
    return {"ansible.builtin.template": {"src": source, "dest": f"{folder}/{name}"}}


def test_the_jobs_read_what_is_rendered(plan: Plan, rendered: Path) -> None:
    read = config.load(rendered / "insights.json")
    assert (read.application, read.jobs) == ("insights", plan.applications["insights"])
    nameservice = plan.names.hdfs.nameservice
    archive = read.archive_of(read.streams["events"])
    assert archive == f"hdfs://{nameservice}{plan.spark.settings.common.archives}/events"
    assert read.kafka == "kafka-1:9092,kafka-2:9092,kafka-3:9092"
    assert read.cassandra == ["cassandra-1", "cassandra-2", "cassandra-3"]
    assert read.sentinels == plan.endpoints.sentinels
    assert read.names.cassandra.keyspace == plan.names.cassandra.keyspace
    assert read.names.zookeeper.applications == plan.names.zookeeper.applications


def test_a_contract_is_read_off_what_is_rendered(plan: Plan, rendered: Path) -> None:
    content = json.loads((rendered / "insights.json").read_text())
    assert contract.of(content).keys() == {*plan.applications["insights"]}


def test_the_gateway_reads_what_is_rendered(plan: Plan, rendered: Path) -> None:
    read = gateway.load(rendered / "gateway.json")
    assert read.name == HOST
    assert read.zookeeper == "coord-1:2181,coord-2:2181,coord-3:2181"
    assert read.resourcemanagers == ["master-1:8088", "master-2:8088"]
    assert read.user == plan.names.hdfs.user
    assert read.znodes.gateway_lock == plan.names.zookeeper.gateway_lock
    logs = plan.hadoop.settings["yarn-site.xml"]["yarn.nodemanager.remote-app-log-dir"]
    assert read.upkeep.application_logs == logs
    assert read.cassandra.keyspace == plan.names.cassandra.keyspace
    assert read.kafka.brokers == "kafka-1:9092,kafka-2:9092,kafka-3:9092"
    assert read.metrics_port == plan.services["job_gateway"].ports["metrics"]


def test_the_gateway_reads_how_long_records_may_wait_for_a_job(plan: Plan, tmp_path: Path) -> None:
    deployed = deployment(tmp_path, "insights", "v1")
    deployed.folder.mkdir()
    deployed.config.write_text(json.dumps(inventory_deployment(plan, "insights")))
    bounds = {job: plan.spark.settings.job(job).lag_seconds for job in plan.jobs}
    assert deployed.lag_seconds() == bounds


def test_the_api_reads_what_is_rendered(plan: Plan, rendered: Path) -> None:
    read = ApiSettings.model_validate_json((rendered / "config.json").read_bytes())
    assert read.kafka == plan.endpoints.kafka
    assert read.stream == plan.names.redis.live_stream
    assert read.keyspace == plan.names.cassandra.keyspace
    assert read.metrics_port == plan.services["insight_api"].ports["metrics"]
    assert [host for host, _ in read.prometheus] == [HOST, "edge-1"]  # its own is asked first
