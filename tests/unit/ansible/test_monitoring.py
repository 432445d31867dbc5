"""What the roles render for Prometheus and Alertmanager, read by their own tools and by YAML."""

import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from millrace.common.paths import ANSIBLE
from millrace.inventory import build_inventory
from millrace.plan import Plan, load_plan, receivers
from millrace.setup.promtool import ensure_promtool
from tests.playbooks import run_here

HOST = "edge-2"
FILES = {"prometheus_server": "prometheus.yml", "alertmanager": "alertmanager.yml"}


RECEIVER = {
    "webhook_configs": [
        {
            "url": "https://pager.example.org/alerts",
            "http_config": {"authorization": {"credentials_file": "pager-token"}},
        }
    ],
    "slack_configs": [{"channel": "#operations", "api_url_file": "slack-url"}],
    "pagerduty_configs": [{"routing_key_file": "pagerduty-key"}],
}


@pytest.fixture(scope="module")
def plan() -> Plan:
    return load_plan("local")


@pytest.fixture(scope="module")
def rendered(plan: Plan, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("rendered")
    play = {
        "hosts": HOST,
        "vars_files": [f"{ANSIBLE}/roles/{role}/vars/main.yml" for role in FILES],
        "tasks": [
            {
                "ansible.builtin.template": {
                    "src": f"{ANSIBLE}/roles/{role}/templates/{name}.j2",
                    "dest": f"{folder}/{name}",
                }
            }
            for role, name in FILES.items()
        ],
    }
    run_here(build_inventory(plan, {}, artifacts="http://nowhere"), folder, **play)
    return folder


def read(path: Path) -> Any:
    return yaml.safe_load(path.read_text())


def test_prometheus_takes_its_configuration(rendered: Path) -> None:
    (rendered / "rules.yml").write_text("groups: []\n")
    done = subprocess.run(
        [ensure_promtool(), "check", "config", rendered / "prometheus.yml"],
        capture_output=True,
        text=True,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_host_of_every_service_with_metrics_is_scraped(plan: Plan, rendered: Path) -> None:
    scraped = {
        (job["job_name"], target)
        for job in read(rendered / "prometheus.yml")["scrape_configs"]
        for config in job["static_configs"]
        for target in config["targets"]
    }
    expected = {
        (service.unit, f"{plan.host(host).address}:{service.ports[service.metrics.port]}")
        for service in plan.services.values()
        if service.metrics
        for host in service.hosts
    }
    assert scraped == expected
    assert len(expected) > 20


def test_a_prometheus_tells_its_own_alertmanager_and_is_told_apart(rendered: Path) -> None:
    content = read(rendered / "prometheus.yml")
    (alertmanagers,) = content["alerting"]["alertmanagers"]
    assert alertmanagers["static_configs"][0]["targets"] == ["198.18.0.72:9193"]
    assert content["global"]["external_labels"] == {
        "replica": HOST,
        "pages": "http://198.18.0.72:8080",
    }


def test_nobody_is_woken_by_what_explains(rendered: Path) -> None:
    content = read(rendered / "alertmanager.yml")
    assert content["route"]["routes"] == [{"matchers": ['severity="info"'], "receiver": "nobody"}]
    assert {receiver["name"] for receiver in content["receivers"]} == {"nobody", "operators"}


def test_every_service_gives_figures_or_is_seen_by_another_that_does(plan: Plan) -> None:
    """Redis has its exporter; of Sentinel and ZKFC the host's exporter tells whether they run."""
    silent = {name for name, service in plan.services.items() if not service.metrics}
    assert silent == {"redis", "redis_sentinel", "zkfc"}


def test_a_jvm_loads_the_agent_with_the_rules_that_are_there(plan: Plan) -> None:
    """In the unit alone: a tool that loaded it, too, would find its port taken."""
    files = {path.stem for path in (ANSIBLE / "roles" / "jmx_agent" / "files").iterdir()}
    asked = {
        role: found[1]
        for role in plan.services
        for path in (ANSIBLE / "roles" / role / "tasks").glob("service.yml")
        if (found := re.search(r"systemd_service_jmx_rules: (\w+)", path.read_text()))
    }
    assert {*asked.values()} == files
    for service in asked:
        assert plan.services[service].metrics
        assert plan.services[service].memory.heap


# --- who is told ----------------------------------------------------------------------------------


def test_nobody_is_told_unless_somebody_is_named(rendered: Path) -> None:
    assert read(rendered / "alertmanager.yml")["receivers"] == [
        {"name": "nobody"},
        {"name": "operators"},
    ]


def test_a_receiver_is_taken_and_its_secrets_are_files_of_the_host(plan: Plan) -> None:
    assert list(receivers.problems(RECEIVER)) == []
    inventory = build_inventory(plan.model_copy(update={"receiver": RECEIVER}), {})
    made = inventory["all"]["vars"]["millrace"]["receiver"]
    assert made["secrets"] == ["pager-token", "pagerduty-key", "slack-url"]
    authorization = made["settings"]["webhook_configs"][0]["http_config"]["authorization"]
    assert authorization["credentials_file"] == f"{made['folder']}/pager-token"
    assert made["settings"]["slack_configs"][0]["channel"] == "#operations"


@pytest.mark.parametrize(
    ("settings", "complaint"),
    [
        ({"slack_configs": [{"api_url": "https://x"}]}, "api_url is a secret: say api_url_file"),
        (
            {"webhook_configs": [{"url": "x", "http_config": {"basic_auth": {"password": "x"}}}]},
            "password is a secret: say password_file",
        ),
        ({"slack_configs": [{"api_url_file": "../key"}]}, "'../key' is not the bare name"),
    ],
)
def test_a_secret_in_the_configuration_is_refused(settings: dict, complaint: str) -> None:
    (problem,) = receivers.problems(settings)
    assert complaint in problem
