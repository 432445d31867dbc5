"""What the collector's role makes of the plan, read by the collector itself."""

import hashlib
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml
from millrace_collector.settings import Settings

from millrace.common.paths import ANSIBLE
from millrace.inventory import build_inventory
from millrace.plan import Plan, load_plan
from tests.playbooks import written

ROLE = ANSIBLE / "roles" / "collector"


def render(plan: Plan, folder: Path) -> subprocess.CompletedProcess[str]:
    """The keys are made or missed, the configuration is written: key-NAME and config.json."""
    play = {
        "hosts": "edge-2",
        "connection": "local",
        "gather_facts": False,
        "tasks": [
            {"ansible.builtin.include_role": {"name": str(ROLE), "tasks_from": "keys"}},
            {
                "ansible.builtin.template": {
                    "src": str(ROLE / "templates" / "config.json.j2"),
                    "dest": str(folder / "config.json"),
                },
                "vars": {"collector_plan": plan.services["collector"].model_dump(mode="json")},
            },
        ],
        "vars_files": [str(ROLE / "vars" / "main.yml")],
    }
    (folder / "play.yml").write_text(yaml.safe_dump([play]))
    inventory = written(build_inventory(plan, {}, artifacts="http://nowhere"), folder)
    given: dict[str, Any] = {
        "collector_keys": f"{folder}/key-",
        "ansible_python_interpreter": sys.executable,
    }
    ansible = Path(sys.executable).with_name("ansible-playbook")
    return subprocess.run(
        [ansible, "-i", inventory, "-e", json.dumps(given), folder / "play.yml"],
        env=os.environ | {"ANSIBLE_LOCALHOST_WARNING": "false", "ANSIBLE_BECOME": "false"},
        capture_output=True,
        text=True,
    )


def test_a_local_key_is_made_and_hosts_get_its_digest(tmp_path: Path) -> None:
    plan = load_plan("local")
    done = render(plan, tmp_path)
    assert done.returncode == 0, done.stdout + done.stderr
    secret = (tmp_path / "key-development").read_text().strip()
    settings = Settings.model_validate_json((tmp_path / "config.json").read_bytes())
    assert len(secret) >= 43
    assert [(key.name, key.sha256) for key in settings.keys] == [
        ("development", hashlib.sha256(secret.encode()).hexdigest())
    ]
    assert secret not in (tmp_path / "config.json").read_text()
    assert settings.streams.keys() == plan.streams.keys()
    assert settings.kafka["bootstrap.servers"] == "kafka-1:9092,kafka-2:9092,kafka-3:9092"


def test_elsewhere_a_key_that_is_not_there_is_asked_for(tmp_path: Path) -> None:
    keys = load_plan("local").collector_keys
    done = render(load_plan("dev").model_copy(update={"collector_keys": keys}), tmp_path)
    assert done.returncode != 0
    assert "secrets/collector-development on this machine" in done.stdout


@pytest.mark.parametrize(
    ("first", "second", "said"),
    [
        ("", "b" * 32, "collector-first: a key has 32 characters at least"),
        ("\n", "b" * 32, "collector-first: a key has 32 characters at least"),
        ("a" * 31, "b" * 32, "collector-first: a key has 32 characters at least"),
        ("a" * 32, " " + "b" * 40, "collector-second: a key has 32 characters at least"),
        ("a" * 32, "a" * 32 + "\n", "two of first, second have one key"),
        ("a" * 32, "b" * 32, ""),
    ],
)
def test_a_key_is_long_and_nobody_elses(tmp_path: Path, first: str, second: str, said: str) -> None:
    limits = load_plan("local").collector_keys["development"]
    (tmp_path / "key-first").write_text(first)
    (tmp_path / "key-second").write_text(second)
    plan = load_plan("local").model_copy(
        update={"collector_keys": {"first": limits, "second": limits}}
    )
    done = render(plan, tmp_path)
    assert (done.returncode == 0) == (not said), done.stdout + done.stderr
    assert said in " ".join(done.stdout.split())
    assert "a" * 31 not in done.stdout


def test_nobody_may_send_to_a_cloud_unless_it_is_said() -> None:
    assert not load_plan("prod").collector_keys
