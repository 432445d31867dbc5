"""A second `make up` on a converged cluster: nothing is made, changed or restarted."""

import pytest

from millrace.cluster.ssh import on_all, run_on
from millrace.common.paths import stack_name
from millrace.plan import load_plan
from tests.playbooks import changed, run_playbook

pytestmark = pytest.mark.e2e


def started_units() -> dict[str, str]:
    """Host → when each of its units was started."""
    plan = load_plan(stack_name())

    def ask(host) -> str:
        units = " ".join(plan.services[name].unit for name in host.services)
        return run_on(plan, host, f"systemctl show -p Id,ActiveEnterTimestamp {units}").stdout

    return on_all(plan.hosts, ask)


def test_a_second_preview_is_empty():
    from infra import automation

    changes = automation.preview(automation.stack(stack_name()))
    assert {kind: n for kind, n in changes.items() if kind != "same"} == {}


@pytest.mark.parametrize("name", ["site.yml", "deploy-jobs.yml"])
def test_a_second_run_changes_and_restarts_nothing(name):
    before = started_units()
    recap = run_playbook(name)
    assert len(recap) > 0
    assert changed(recap) == {}
    assert started_units() == before


def test_check_mode_works_on_a_converged_cluster():
    """On the first host of each group: the others have the same roles, and it takes minutes."""
    recap = run_playbook("site.yml", "--check", "--diff", "--limit", "*-1")
    assert {host.name for host in load_plan(stack_name()).hosts if host.index == 1} <= {*recap}
    assert changed(recap) == {}
