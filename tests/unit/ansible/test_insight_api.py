"""What the API's role makes of the plan, read by the API itself."""

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from millrace_api.settings import Settings

from millrace.common.paths import ANSIBLE
from millrace.inventory import build_inventory
from millrace.plan import DATA_ROOT, load_plan
from tests.playbooks import written

ROLE = ANSIBLE / "roles" / "insight_api"
OIDC = {
    "region": "eu-central-1",
    "balancer": "arn:aws:elasticloadbalancing:eu-central-1:123456789012:loadbalancer/app/edge/0123",
    "scopes": {
        "everybody": ["insights"],
        "groups": {"operators": ["operations"]},
        "groups_claim": "groups",
    },
}


def rendered(folder: Path, environment: str, **known: Any) -> Settings:
    """The settings on the second edge host; ``known`` is told with the plan."""
    play = {
        "hosts": "edge-2",
        "connection": "local",
        "gather_facts": False,
        "tasks": [
            {
                "ansible.builtin.template": {
                    "src": str(ROLE / "templates" / "config.json.j2"),
                    "dest": str(folder / "config.json"),
                }
            }
        ],
        "vars_files": [str(ROLE / "vars" / "main.yml")],
    }
    (folder / "play.yml").write_text(yaml.safe_dump([play]))
    inventory = build_inventory(load_plan(environment), {}, artifacts="http://nowhere")
    inventory["all"]["vars"]["millrace"] |= known
    ansible = Path(sys.executable).with_name("ansible-playbook")
    done = subprocess.run(
        [
            *(ansible, "-i", written(inventory, folder)),
            *("-e", f"ansible_python_interpreter={sys.executable}", folder / "play.yml"),
        ],
        env=os.environ | {"ANSIBLE_LOCALHOST_WARNING": "false", "ANSIBLE_BECOME": "false"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return Settings.model_validate_json((folder / "config.json").read_bytes())


@pytest.mark.parametrize("environment", ["local", "prod"])
def test_it_knows_where_keys_are_and_how_many_doors_there_are(
    tmp_path: Path, environment: str
) -> None:
    plan = load_plan(environment)
    settings = rendered(tmp_path, environment)
    assert settings.host == "edge-2"
    assert settings.doors == len(plan.services["insight_api"].hosts)
    assert settings.zookeeper == plan.endpoints.zookeeper
    assert settings.znodes.keys == plan.names.zookeeper.keys
    assert settings.data == Path(DATA_ROOT) / plan.services["insight_api"].unit
    assert settings.oidc is None


def test_a_balancer_that_authenticates_is_told(tmp_path: Path) -> None:
    settings = rendered(tmp_path, "prod", oidc=OIDC)
    assert settings.oidc is not None
    assert settings.oidc.model_dump() == OIDC
