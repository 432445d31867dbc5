"""Two operators of one stack: the real engine on a bucket and a key that the template has made.

Bucket and key are moto's, on loopback. The program declares no host: that isn't asked here.
"""

import threading
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from infra import automation, exports, keys
from millrace.common.errors import OperatorError
from millrace.common.paths import REPO
from millrace.config import load_environment
from millrace.plan import Plan, load_plan
from millrace.plan.aws import shared_state
from tests.moto import asked, moto

pytestmark = pytest.mark.engine

ACCOUNT = "123456789012"  # moto's
TEMPLATE = REPO / "infra" / "aws" / "state.yaml"
MAKE_STATE = """
import boto3, sys
cloudformation = boto3.client("cloudformation", sys.argv[1])
cloudformation.create_stack(StackName="millrace-state", TemplateBody=open(sys.argv[2]).read())
"""
SHOW_STATE = """
import boto3, sys
for bucket in boto3.resource("s3").buckets.all():
    assert bucket.name == f"millrace-state-{sys.argv[1]}-us-east-1"
    for each in bucket.objects.all():
        print(each.key, each.get()["Body"].read())
"""


def in_account() -> Plan:
    plan = load_plan("dev")
    environment = load_environment("dev")
    assert plan.aws
    assert environment.aws
    state = shared_state(environment.aws.model_copy(update={"account": ACCOUNT}))
    aws = plan.aws.model_copy(update={"account": ACCOUNT, "state": state})
    return plan.model_copy(update={"aws": aws})


class Operator:
    """A machine with a checkout of its own; its functions run as if it were the only one."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.project, self.state = folder / "checkout", folder / "state"
        self.state.mkdir(parents=True)
        self.project.mkdir()
        (self.project / "Pulumi.yaml").write_text((REPO / "Pulumi.yaml").read_text())
        self._patch = patch

    def stack(self) -> automation.auto.Stack:
        for module in (keys, automation, exports):
            self._patch.setattr(module, "stack_state", lambda name: self.state)
        return automation.stack("dev", project=self.project)

    def up(self) -> None:
        automation.up(self.stack())

    def secret(self, content: str = "") -> str:
        """The key of those who may send events, after it was changed."""
        path = self.state / "secrets" / "collector-web"
        if content:
            path.parent.mkdir(exist_ok=True)
            path.write_text(content)
        return path.read_text()


@pytest.fixture
def operator(tmp_path: Path) -> Iterator[Callable[[str], Operator]]:
    """Operators by name, of an account in which nothing was made but the place for the state."""
    plan = in_account()

    def declare(name: str) -> None:
        keys.ensure_ssh_key(name)
        exports.export(plan, {"all": {"hosts": ["edge-1"]}})

    with pytest.MonkeyPatch.context() as patch, moto(tmp_path) as environment:
        for key, value in environment.items():
            patch.setenv(key, value)
        for key in ("PULUMI_BACKEND_URL", "PULUMI_CONFIG_PASSPHRASE"):
            patch.delenv(key, raising=False)
        patch.setattr(automation, "load_plan", lambda name: plan)
        patch.setattr(automation, "program", declare)
        asked(MAKE_STATE, plan.aws.region, str(TEMPLATE))
        yield lambda name: Operator(tmp_path / name, patch)


def test_a_second_operator_has_what_the_first_one_made(operator) -> None:
    ann, bob = operator("ann"), operator("bob")
    ann.secret("first")
    ann.up()
    private = (ann.state / "ssh_key").read_text()
    stored = asked(SHOW_STATE, ACCOUNT)
    assert "dev.json" in stored
    assert "edge-1" in stored
    assert private.splitlines()[1] not in stored
    assert "first" not in stored

    stack = bob.stack()
    assert (bob.state / "ssh_key").read_text() == private
    assert oct((bob.state / "ssh_key").stat().st_mode)[-3:] == "600"
    assert bob.secret() == "first"
    assert automation.preview(stack) == {}

    bob.secret("second")
    bob.up()
    ann.stack()
    assert ann.secret() == "second"

    ann.secret("of ann")
    bob.secret("of bob")
    bob.up()
    with pytest.raises(OperatorError, match="secrets/collector-web"):
        ann.stack()
    assert ann.secret() == "of ann"


def test_one_operator_waits_for_the_other(operator, monkeypatch) -> None:
    ann, bob = operator("ann"), operator("bob")
    ann.up()
    begun, done = threading.Event(), threading.Event()
    declared = automation.program

    def slowly(name: str) -> None:
        begun.set()
        done.wait(60)
        declared(name)

    monkeypatch.setattr(automation, "program", slowly)
    stack = ann.stack()
    first = threading.Thread(target=lambda: automation.up(stack))
    first.start()
    try:
        assert begun.wait(60)
        monkeypatch.setattr(automation, "program", declared)
        # Also not taken for one that died: its process is alive.
        with pytest.raises(OperatorError, match="another Pulumi process"):
            bob.up()
    finally:
        done.set()
        first.join()
    bob.up()


def test_nothing_is_made_in_an_account_that_nobody_named(monkeypatch) -> None:
    monkeypatch.delenv("PULUMI_BACKEND_URL", raising=False)
    with pytest.raises(OperatorError, match="names no account"):
        automation.engine_environment("dev")
    assert "s3://" not in automation.engine_environment("local")["PULUMI_BACKEND_URL"]
