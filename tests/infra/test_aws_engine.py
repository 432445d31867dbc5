"""The real engine on the AWS environments, with a stand-in for the provider.

This proves the program: that it comes to an end, that a second run changes nothing, what a change
replaces, that nothing is left. It doesn't prove AWS: `make rehearse-aws` comes nearer to that.
"""

import json
import os
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest
from pulumi import automation as auto

from infra import automation, keys, program
from infra.aws import program as aws_program
from millrace.errors import OperatorError
from millrace.paths import REPO
from millrace.plan import Plan, load_plan

pytestmark = pytest.mark.engine

STANDIN = Path(__file__).parent / "standin"
INSTANCE = "aws:ec2/instance:Instance"
VOLUME = "aws:ebs/volume:Volume"
MANIFEST = {"store": {"version": "1", "file": "store-1.tar", "sha256": "0" * 64}}


class Account:
    """An account that the stand-in plays: stacks on any plan, and what was done to resources."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self.patch = patch
        self._log = folder / "log"
        (folder / "infra").mkdir()
        (folder / "Pulumi.yaml").write_text((REPO / "Pulumi.yaml").read_text())
        (folder / "store-1.tar").write_text("a distribution")
        patch.setenv("PULUMI_BACKEND_URL", f"file://{folder}")
        patch.setenv("PULUMI_CONFIG_PASSPHRASE", "only a test's")
        patch.setenv("PATH", f"{STANDIN}{os.pathsep}{os.environ['PATH']}")
        patch.setenv("STANDIN_LOG", str(self._log))
        for module in (keys, automation):
            patch.setattr(module, "stack_state", self._state)
        patch.setattr(program, "read_manifest", lambda: MANIFEST)
        patch.setattr(aws_program, "ARTIFACTS", folder)

    def _state(self, stack: str) -> Path:
        state = self.folder / "state"
        state.mkdir(exist_ok=True)
        return state

    def stack(self, plan: Plan) -> auto.Stack:
        self.patch.setattr(program, "load_plan", lambda name: plan)
        return automation.stack(plan.environment, project=self.folder)

    def done(self) -> dict[str, set[str]]:
        """Since the last call: step → names of the resources, as ``type name``."""
        lines = self._log.read_text().splitlines() if self._log.exists() else []
        self._log.write_text("")
        found: dict[str, set[str]] = {"create": set(), "update": set(), "delete": set()}
        for line in map(json.loads, lines):
            kind, name = line["urn"].split("::")[2:4]
            found[line["step"]].add(f"{kind.split('$')[-1]} {name}")
        return found


@pytest.fixture
def account(tmp_path: Path) -> Iterator[Account]:
    with pytest.MonkeyPatch.context() as patch:
        yield Account(tmp_path, patch)


def resources(stack: auto.Stack) -> list[dict]:
    return stack.export_stack().deployment.get("resources", [])


@pytest.mark.parametrize("name", ["dev", "staging", "prod"])
def test_an_environment_from_nothing_to_nothing(account: Account, name: str) -> None:
    plan = load_plan(name)
    stack = account.stack(plan)
    assert automation.preview(stack).keys() == {"create"}
    assert account.done()["create"] == set()

    made = automation.up(stack)
    assert made.changes.keys() == {"create"}
    print(f"{name}: {made.changes['create']} resources")
    assert {s.partition(" ")[2] for s in account.done()["create"] if s.startswith(INSTANCE)} == {
        host.name for host in plan.hosts
    }
    placed = Counter(r["inputs"]["subnetId"] for r in resources(stack) if r["type"] == INSTANCE)
    assert sorted(placed.values()) == sorted(Counter(h.zone for h in plan.hosts).values())

    assert automation.preview(stack) == {}

    automation.destroy(stack, purge=False)
    kept = {r["urn"].split("::")[-1] for r in resources(stack) if r["type"] == VOLUME}
    assert kept == {volume.name for host in plan.hosts for volume in host.volumes}
    assert INSTANCE not in {r["type"] for r in resources(stack)}

    automation.destroy(stack, purge=True, provider="aws")
    assert name not in {each.name for each in stack.workspace.list_stacks()}
