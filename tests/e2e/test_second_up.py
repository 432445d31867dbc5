"""A second `make up` on a converged cluster: nothing is made, changed or restarted."""

import pytest

from millrace.common.paths import stack_name
from millrace.plan import load_plan
from tests.playbooks import changed, run_playbook, started_units


def test_a_second_preview_is_empty():
    from infra import automation

    changes = automation.preview(automation.stack(stack_name()))
    assert {kind: n for kind, n in changes.items() if kind != "same"} == {}


@pytest.mark.parametrize("name", ["site.yml", "deploy-jobs.yml"])
def test_a_second_run_changes_and_restarts_nothing(name):
    plan = load_plan(stack_name())
    before = started_units(plan)
    recap = run_playbook(name)
    assert len(recap) > 0
    assert changed(recap) == {}
    assert started_units(plan) == before


@pytest.mark.extended
def test_check_mode_works_on_a_converged_cluster():
    """On the first host of each group: the others have the same roles, and it takes minutes."""
    recap = run_playbook("site.yml", "--check", "--diff", "--limit", "*-1")
    assert {host.name for host in load_plan(stack_name()).hosts if host.index == 1} <= {*recap}
    assert changed(recap) == {}
