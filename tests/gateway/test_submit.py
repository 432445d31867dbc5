"""spark-submit as a child of the gateway, and what is deployed for it."""

import json
from pathlib import Path

import pytest
from millrace_gateway.submit import Archive, Child, Deployment, NotDeployed, command

from tests.gateway.fakes import spark_submit


def test_command_names_application_version_package_and_config():
    words = command(
        Path("/opt/spark-submit"), Deployment("insights", "v2", Path("/d")), Path("/tmp/main.py")
    )
    line = " ".join(words)
    assert "--deploy-mode cluster --name insights" in line
    assert "spark.yarn.tags=millrace:insights,version:v2" in line
    assert "spark.yarn.submit.waitAppCompletion=false" in line
    assert "--py-files /d/millrace_jobs.zip --files /d/insights.json" in line
    assert words[-3:] == ["/tmp/main.py", "--config", "insights.json"]


def test_a_spark_submit_that_hangs_is_killed(tmp_path, deployments):
    hanging = spark_submit(tmp_path, "exec sleep 3600")
    deployed = Deployment("insights", "v2", deployments / "insights-v2")
    child = Child(hanging, deployed, tmp_path / "log", timeout=0)
    assert child.ended()
    assert child.error().startswith("spark-submit was killed")


def test_a_deployment_lacking_a_file_is_refused_by_name(tmp_path):
    with pytest.raises(NotDeployed, match=r"millrace_jobs\.zip is missing"):
        Deployment("insights", "v2", tmp_path).check()


def test_a_deployment_s_archives(tmp_path):
    content = {
        "jobs": ["archive", "traffic", "archive_clicks"],
        "settings": {
            "common": {"stream": "events", "archives": "/archive"},
            "archive": {},
            "traffic": {},
            "archive_clicks": {"stream": "clicks"},
        },
        "streams": {"events": {"topic": "events"}, "clicks": {"topic": "ad-clicks"}},
    }
    deployed = Deployment("insights", "v2", tmp_path)
    assert list(deployed.archives()) == []  # its files are missing
    deployed.config.write_text(json.dumps(content))
    assert list(deployed.archives()) == [
        Archive("archive", "events", "events", "/archive/events"),
        Archive("archive_clicks", "clicks", "ad-clicks", "/archive/clicks"),
    ]
