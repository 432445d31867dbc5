"""A gateway's settings, and a deployment on its host."""

import zipfile
from pathlib import Path

import pytest
from millrace_gateway.settings import Cassandra, Kafka, Settings, Upkeep

from millrace_shared.names import ZookeeperNames
from tests.gateway.fakes import spark_submit
from tests.waiting import PATIENCE_SECONDS


@pytest.fixture
def deployments(tmp_path: Path) -> Path:
    """A deployed v2 of `insights`."""
    folder = tmp_path / "insights-v2"
    folder.mkdir()
    (folder / "insights.json").write_text("{}")
    with zipfile.ZipFile(folder / "millrace_jobs.zip", "w") as package:
        package.writestr("millrace_jobs/main.py", "")
    return tmp_path


@pytest.fixture
def settings(tmp_path: Path, deployments: Path) -> Settings:
    return Settings(
        name="edge-1",
        zookeeper="",
        znodes=ZookeeperNames(
            "/gateway/lock", "/applications", "/jobs", "/upkeep", "/keys", "/doors"
        ),
        cassandra=Cassandra([], 9042, "dc", "keyspace"),
        kafka=Kafka("", "group-"),
        metrics_port=0,
        resourcemanagers=[],
        namenodes=[],
        user="millrace",
        account="gateway",
        environment={"PYTHONPATH": "/gateway.zip", "HADOOP_USER_NAME": "millrace"},
        spark_submit=spark_submit(tmp_path, "exit 0"),
        deployments=deployments,
        logs=tmp_path,
        drivers=2,
        poll_seconds=1,
        session_seconds=10,
        request_timeout_seconds=PATIENCE_SECONDS,
        submit_timeout_seconds=PATIENCE_SECONDS,
        drain_timeout_seconds=90,
        pause_max_seconds=60,
        settled_seconds=300,
        warm_timeout_seconds=900,
        deploy_timeout_seconds=480,
        recount_timeout_seconds=7200,
        catch_up_seconds=20,
        upkeep=Upkeep(
            hour_utc=3,
            overdue_hours=50,
            timeout_seconds=PATIENCE_SECONDS,
            heap_mb=512,
            memory_mb=900,
            cores=1,
            left_days=7,
            application_logs="/logs",
        ),
    )
