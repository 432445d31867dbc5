"""What ansible-core will take away is heard, but for the strategy that decision 21 has weighed."""

import subprocess
import sys
from pathlib import Path

import yaml

from millrace.common.paths import ANSIBLE
from tests.playbooks import DEPRECATION

PLAYBOOKS = sorted((ANSIBLE / "playbooks").glob("*.yml"))
MODULE = """\
from ansible.module_utils.basic import AnsibleModule

module = AnsibleModule(argument_spec={})
module.deprecate("An old way", version="99.0", collection_name="ansible.builtin")
module.exit_json()
"""


def run(playbook: Path, *arguments: str) -> str:
    """What Ansible prints, by the project's own configuration."""
    ansible = Path(sys.executable).with_name("ansible-playbook")
    done = subprocess.run(
        [ansible, "-i", "localhost,", playbook, *arguments],
        cwd=ANSIBLE,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    assert done.returncode == 0, done.stdout
    return done.stdout


def test_a_deprecation_is_heard_and_the_strategy_is_not_told_of(tmp_path: Path) -> None:
    (tmp_path / "library").mkdir()
    (tmp_path / "library" / "old_way.py").write_text(MODULE)
    here = {"ansible_python_interpreter": sys.executable}
    play = {"hosts": "localhost", "connection": "local", "vars": here, "tasks": [{"old_way": {}}]}
    (tmp_path / "play.yml").write_text(yaml.safe_dump([play]))
    [told] = [line for line in run(tmp_path / "play.yml").splitlines() if DEPRECATION in line]
    assert "An old way" in told


def test_nothing_is_written_in_a_deprecated_way(tmp_path: Path) -> None:
    """Nor what a role includes as it runs, which a playbook's syntax check doesn't read."""
    included = [
        {"ansible.builtin.import_role": {"name": path.parts[-3], "tasks_from": path.name}}
        for path in sorted((ANSIBLE / "roles").glob("*/tasks/*.yml"))
    ]
    play = {"hosts": "localhost", "tasks": included}
    (tmp_path / "play.yml").write_text(yaml.safe_dump([play]))
    assert len(included) > 80
    assert DEPRECATION not in run(tmp_path / "play.yml", *map(str, PLAYBOOKS), "--syntax-check")
