"""The policy pack under the real engine, with a stand-in for the AWS plugin: no Docker, no AWS."""

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

from infra.automation import engine_environment
from millrace.paths import REPO

pytestmark = pytest.mark.engine

PACK = REPO / "infra" / "policy"
STAND_IN = Path(__file__).parent / "policy_engine"
STACK = "policy-test"

# A clean volume, and one with the properties that a test gives; a role that may use a bucket.
MAIN = """
import json, pathlib
import pulumi

given = json.loads(pathlib.Path(__file__).with_name("given.json").read_text())
tags = {f"millrace.{tag}": "x" for tag in ("cluster", "stack", "host", "group")}
data = pulumi.ResourceOptions(protect=True)
clean = {"tags": tags, "encrypted": True}
first = pulumi.CustomResource("aws:ebs/volume:Volume", "first", clean, data)
pulumi.CustomResource("aws:ebs/volume:Volume", "second", clean | given["volume"], data)

def policy(volume):
    statement = {"Effect": "Allow", "Action": given["action"], "Resource": ["*", volume]}
    return json.dumps({"Version": "2012-10-17", "Statement": [statement]})

pulumi.CustomResource(
    "aws:iam/rolePolicy:RolePolicy", "role-policy", {"policy": first.id.apply(policy)}
)
replication = {"kafka": 3, "min_insync": 2, "cassandra": 3, "hdfs": 3}
planned = {"replication": replication, "topics": {}}
pulumi.export("inventory", {"all": {"vars": {"millrace": planned}}})
"""


class Project:
    def __init__(self, folder: Path) -> None:
        self._folder = folder
        (folder / "infra").mkdir()
        (folder / "infra" / "__main__.py").write_text(MAIN)
        (folder / "Pulumi.yaml").write_text((REPO / "Pulumi.yaml").read_text())
        self.pulumi("stack", "init", STACK)

    def given(self, volume: dict[str, Any], action: str = "ec2:DescribeVolumes") -> None:
        given = json.dumps({"volume": volume, "action": action})
        (self._folder / "infra" / "given.json").write_text(given)

    def pulumi(self, *args: str) -> subprocess.CompletedProcess[str]:
        environment = os.environ | engine_environment(STACK)
        environment["PATH"] = f"{STAND_IN}{os.pathsep}{environment['PATH']}"
        return subprocess.run(
            ["pulumi", *args, "--non-interactive", "--color", "never"],
            cwd=self._folder,
            env=environment,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )

    def preview(self, *args: str) -> subprocess.CompletedProcess[str]:
        return self.pulumi("preview", "--policy-pack", str(PACK), *args)

    def up(self) -> subprocess.CompletedProcess[str]:
        return self.pulumi("up", "--yes", "--skip-preview", "--policy-pack", str(PACK))


@pytest.fixture
def project(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Project:
    backend = tmp_path / "backend"
    backend.mkdir()
    monkeypatch.setenv("PULUMI_BACKEND_URL", f"file://{backend}")
    monkeypatch.setenv("PULUMI_CONFIG_PASSPHRASE", "only a test's")
    return Project(tmp_path)


def test_a_clean_program_passes_and_its_second_preview_is_empty(project: Project) -> None:
    project.given(volume={})
    previewed = project.preview()
    assert previewed.returncode == 0, previewed.stdout
    made = project.up()
    assert made.returncode == 0, made.stdout
    again = project.preview("--expect-no-changes")
    assert again.returncode == 0, again.stdout


def test_a_violation_fails_the_preview_and_is_named_once(project: Project) -> None:
    project.given(volume={"encrypted": False})
    previewed = project.preview()
    assert previewed.returncode != 0
    assert previewed.stdout.count("[mandatory]") == 1, previewed.stdout
    assert "encrypted-disks  (aws:ebs:Volume: second)" in previewed.stdout


def test_what_a_preview_cannot_know_is_refused_by_up(project: Project) -> None:
    project.given(volume={}, action="*")
    previewed = project.preview()
    assert previewed.returncode == 0, previewed.stdout
    assert "can't run policy 'no-wildcard-permissions'" in previewed.stdout
    refused = project.up()
    assert refused.returncode != 0
    assert "a statement allows * on *" in refused.stdout
