"""What the collector's role makes of the plan, read by the collector itself."""

import os
import subprocess
import sys
from pathlib import Path

import yaml
from millrace_collector.settings import Settings

from millrace.common.paths import ANSIBLE
from millrace.inventory import build_inventory
from millrace.plan import DATA_ROOT, Plan, load_plan
from millrace_shared.keys import COPY
from tests.playbooks import written

ROLE = ANSIBLE / "roles" / "collector"


def rendered(plan: Plan, folder: Path) -> Settings:
    """The configuration of edge-2."""
    inventory = build_inventory(plan, {}, artifacts="http://nowhere")
    play = {
        "hosts": "edge-2",
        "connection": "local",
        "gather_facts": False,
        "tasks": [
            {
                "ansible.builtin.template": {
                    "src": str(ROLE / "templates" / "config.json.j2"),
                    "dest": str(folder / "config.json"),
                },
            },
        ],
        "vars_files": [str(ROLE / "vars" / "main.yml")],
        "vars": {"role_path": str(ROLE)},
    }
    (folder / "play.yml").write_text(yaml.safe_dump([play]))
    ansible = Path(sys.executable).with_name("ansible-playbook")
    interpreter = f"ansible_python_interpreter={sys.executable}"
    done = subprocess.run(
        [ansible, "-i", written(inventory, folder), "-e", interpreter, folder / "play.yml"],
        env=os.environ | {"ANSIBLE_LOCALHOST_WARNING": "false", "ANSIBLE_BECOME": "false"},
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    return Settings.model_validate_json((folder / "config.json").read_bytes())


def test_the_collector_reads_what_the_role_writes(tmp_path: Path) -> None:
    plan = load_plan("local")
    settings = rendered(plan, tmp_path)
    assert settings.streams.keys() == plan.streams.keys()
    assert settings.kafka["bootstrap.servers"] == "kafka-1:9092,kafka-2:9092,kafka-3:9092"
    assert settings.zookeeper == "coord-1:2181,coord-2:2181,coord-3:2181"
    assert (settings.znodes.keys, settings.znodes.doors) == (
        plan.names.zookeeper.keys,
        plan.names.zookeeper.doors,
    )
    assert (settings.host, settings.all_doors) == ("edge-2", 2)
    # Where `millrace keys` looks for it, should ZooKeeper lose the keys.
    assert settings.keys_file == Path(f"{DATA_ROOT}/{plan.services['collector'].unit}/{COPY}")
