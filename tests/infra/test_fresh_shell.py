"""A plain `pulumi` in a shell that nothing was set in, but for the passphrase's file."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from millrace.common.paths import REPO
from millrace.setup.engine import ensure_engine

pytestmark = pytest.mark.engine

# A resource of the local kind, which the engine has made by a Python of its own choice.
MAIN = """
import sys
import pulumi
from pulumi.dynamic import CreateResult, Resource, ResourceProvider

class Provider(ResourceProvider):
    def create(self, props):
        return CreateResult("made", {"made_in": sys.prefix})

class Made(Resource):
    made_in: pulumi.Output[str]
    def __init__(self):
        super().__init__(Provider(), "made", {"made_in": None})

pulumi.export("program", sys.prefix)
pulumi.export("resource", Made().made_in)
"""


@pytest.fixture
def checkout(tmp_path: Path) -> Path:
    (tmp_path / "Pulumi.yaml").write_text((REPO / "Pulumi.yaml").read_text())
    (tmp_path / "__main__.py").write_text(MAIN)
    (tmp_path / ".venv").symlink_to(sys.prefix)
    (tmp_path / ".millrace" / "pulumi").mkdir(parents=True)
    (tmp_path / ".millrace" / "passphrase").write_text("only a test's")
    return tmp_path


def test_program_and_resources_run_in_the_project_s_environment(checkout: Path) -> None:
    environment = {
        "HOME": str(checkout),
        "PATH": f"{ensure_engine(print).parent}:/usr/local/bin:/usr/bin:/bin",
        "PULUMI_CONFIG_PASSPHRASE_FILE": ".millrace/passphrase",
        "PULUMI_SKIP_UPDATE_CHECK": "true",
    }

    def pulumi(*words: str) -> str:
        command = ["pulumi", *words, "--non-interactive", "--color", "never"]
        done = subprocess.run(
            command, cwd=checkout, env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout

    pulumi("stack", "init", "local")
    pulumi("up", "-s", "local", "--yes", "--skip-preview")
    outputs = json.loads(pulumi("stack", "output", "-s", "local", "--json"))
    assert outputs == dict.fromkeys(("program", "resource"), f"{checkout}/.venv")
    assert list((checkout / ".millrace" / "pulumi").rglob("local.json"))
