"""When a host gets a new unit: in its turn, as role systemd_service has it, and not before.

Two hosts are this machine with a folder of units each; `systemctl` is a stand-in that keeps states.
"""

import grp
import json
import os
import pwd
import shutil
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
import yaml

from millrace.common.paths import ANSIBLE
from millrace.inventory import PATHS, build_inventory
from millrace.plan import load_plan
from tests.playbooks import written

HOSTS = ("redis-1", "redis-2")
DISTRIBUTION = "redis-exporter"
UNIT = load_plan("local").services["redis"].unit
SYSTEMCTL = """\
#!/bin/sh
# Knows one unit. What starts it reads the file that was loaded last.
cd "$HOST_FOLDER"
case "$*" in
    *--property=ActiveState*) cat state 2> /dev/null || echo inactive ;;
    *--property=ActiveEnterTimestamp*) cat since 2> /dev/null ;;
    daemon-reload) cp units/*.service loaded ;;
    "show "*)
        [ -e loaded ] && echo LoadState=loaded || echo LoadState=not-found
        echo "ActiveState=$(cat state 2> /dev/null || echo inactive)" ;;
    is-enabled*) echo enabled ;;
    start*|restart*)
        grep -q broken loaded && exit 1
        cp loaded runs
        echo active > state
        echo "$(basename "$PWD") restarted" >> ../said
        date '+%F %T.%6N' > since ;;
esac
"""

# Of a host with a file `leads` or `refuses`.
GATE = """\
#!/bin/sh
cd "$HOST_FOLDER"
case $1 in
    leads) [ -e leads ] ;;
    *)
        echo "$(basename "$PWD") $1" >> ../said
        [ $1 = after ] || [ ! -e refuses ] || { echo "redis-3: no replica" >&2; exit 1; } ;;
esac
"""


@dataclass
class Cluster:
    folder: Path

    def up(self, version: str, *arguments: str) -> int:
        """Runs the role on both hosts, for a service of this version; returns how it ended."""
        manifest = {DISTRIBUTION: {"version": version, "file": "x.tar", "sha256": "0" * 64}}
        inventory = build_inventory(load_plan("local"), manifest, artifacts="http://nowhere")
        home = inventory["all"]["vars"]["millrace"]["distributions"][DISTRIBUTION]["directory"]
        me = {
            "owner": pwd.getpwuid(os.geteuid()).pw_name,
            "group": grp.getgrgid(os.getegid()).gr_name,
        }
        own = f"{self.folder}/{{{{ inventory_hostname }}}}"
        play: dict[str, Any] = {
            "hosts": ":".join(HOSTS),
            "connection": "local",
            "gather_facts": False,
            "any_errors_fatal": True,
            "module_defaults": {"text_files": me},
            "environment": {"HOST_FOLDER": own, "PATH": f"{self.folder}:{os.environ['PATH']}"},
            "tasks": [
                {
                    "ansible.builtin.import_role": {"name": "systemd_service"},
                    "vars": {
                        "systemd_service_name": "redis",
                        "systemd_service_exec": f"{home}/bin/exporter",
                        "systemd_service_config_paths": [f"{own}/config"],
                        "systemd_service_health": "true",
                    },
                }
            ],
        }
        (self.folder / "play.yml").write_text(yaml.safe_dump([play]))
        ansible = Path(sys.executable).with_name("ansible-playbook")
        options = {
            "systemd_service_units": f"{own}/units",
            "ansible_python_interpreter": sys.executable,
        }
        done = subprocess.run(
            [
                *(ansible, "-i", written(inventory, self.folder), self.folder / "play.yml"),
                *("--extra-vars", json.dumps(options), *arguments),
            ],
            env=os.environ
            | {
                "ANSIBLE_ROLES_PATH": str(ANSIBLE / "roles"),
                "ANSIBLE_LIBRARY": str(ANSIBLE / "plugins" / "modules"),
            },
            capture_output=True,
            text=True,
        )
        self.said = done.stdout + done.stderr
        return done.returncode

    def runs(self) -> list[str]:
        """The version that each host runs."""
        return [self._version(host, "runs") for host in HOSTS]

    def installed(self) -> list[str]:
        """The version that each host would start after a boot."""
        return [self._version(host, f"units/{UNIT}.service") for host in HOSTS]

    def order(self) -> list[str]:
        """What was asked of hosts' gates, and which were restarted, since the first start."""
        return (self.folder / "said").read_text().splitlines()[len(HOSTS) :]

    def _version(self, host: str, file: str) -> str:
        command = (self.folder / host / file).read_text().partition("ExecStart=")[2]
        return command.partition(f"/{DISTRIBUTION}-")[2].partition("/")[0]

    def boot(self, host: str) -> None:
        """As a host does that comes back: it loads what is installed, and starts it."""
        for action in ("daemon-reload", f"restart {UNIT}"):
            here = {"HOST_FOLDER": str(self.folder / host)}
            subprocess.run(
                [self.folder / "systemctl", *action.split()], env=os.environ | here, check=True
            )

    def since(self) -> list[str]:
        return [(self.folder / host / "since").read_text() for host in HOSTS]


@pytest.fixture(scope="module")
def converged(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a cluster that was made once, of hosts on which nothing ran."""
    made = Cluster(tmp_path_factory.mktemp("hosts"))
    for name, program in (("systemctl", SYSTEMCTL), ("service-gate", GATE)):
        (made.folder / name).write_text(program)
        (made.folder / name).chmod(0o755)
    for host in HOSTS:
        (made.folder / host / "units").mkdir(parents=True)
        (made.folder / host / "config").mkdir()
    assert made.up("1") == 0, made.said
    assert made.runs() == ["1", "1"]
    return made.folder


@pytest.fixture
def cluster(converged: Path, tmp_path: Path) -> Cluster:
    return Cluster(shutil.copytree(converged, tmp_path / "hosts"))


def test_a_second_run_changes_nothing_and_a_changed_file_restarts_its_host(cluster) -> None:
    before = cluster.since()
    (cluster.folder / HOSTS[1] / "config" / "file").write_text("changed")
    assert cluster.up("1") == 0
    assert [old == new for old, new in zip(before, cluster.since(), strict=True)] == [True, False]
    assert "changed=0" in cluster.said


def test_a_version_that_fails_on_the_first_host_is_on_no_other(cluster) -> None:
    """Not even as what it would start after a crash, or a boot.

    Which host is the first isn't promised, and on busy cores it is either.
    """
    assert cluster.up("2-broken") != 0
    assert sorted(cluster.installed()) == ["1", "2-broken"]
    cluster.boot(HOSTS[cluster.installed().index("1")])
    assert cluster.runs() == ["1", "1"]


def test_a_new_version_gets_to_each_host_also_where_a_run_ended_before_the_restart(cluster) -> None:
    """There its unit is the plan's already, and isn't what runs."""
    unit = cluster.folder / HOSTS[0] / "units" / f"{UNIT}.service"
    unit.write_text(unit.read_text().replace(f"{DISTRIBUTION}-1", f"{DISTRIBUTION}-2"))
    assert cluster.up("2") == 0
    assert cluster.runs() == ["2", "2"]


def test_a_dry_run_installs_nothing(cluster) -> None:
    assert cluster.up("2", "--check", "--diff") == 0, cluster.said
    assert (cluster.runs(), cluster.installed()) == (["1", "1"], ["1", "1"])
    assert cluster.said.count(
        f"+ExecStart={PATHS['software']}/{DISTRIBUTION}-2/bin/exporter"
    ) == len(HOSTS)


@pytest.mark.parametrize("leader", HOSTS)
def test_who_leads_is_the_last_one_and_each_goes_through_its_gates(cluster, leader: str) -> None:
    (cluster.folder / leader / "leads").touch()
    assert cluster.up("2") == 0, cluster.said
    other = next(host for host in HOSTS if host != leader)
    turns = [
        f"{host} {what}" for host in (other, leader) for what in ("before", "restarted", "after")
    ]
    assert cluster.order() == turns


def test_nothing_is_stopped_while_a_partner_is_missing(cluster) -> None:
    for host in HOSTS:
        (cluster.folder / host / "refuses").touch()
    assert cluster.up("2") != 0
    assert "redis on redis-1 isn't stopped" in cluster.said or "redis on redis-2" in cluster.said
    assert "redis-3: no replica" in cluster.said
    assert [line for line in cluster.order() if "before" not in line] == []
    assert (cluster.runs(), cluster.installed()) == (["1", "1"], ["1", "1"])
