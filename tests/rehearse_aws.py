"""`make rehearse-aws STACK=dev`: the official AWS plugin against moto on loopback.

Nearer to AWS than the engine tests' stand-in: the provider's own checks run, and its requests are
answered. It isn't AWS: moto has no capacity, no quotas and no running machines. Exit code 0 only if
all of it was done; 2 if the plugin can't be had here, which is no pass.
"""

import os
import subprocess
import sys
import tempfile
from pathlib import Path

from rich.console import Console

REPO = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPO))

from infra import automation, keys, program  # noqa: E402
from infra.aws import program as aws_program  # noqa: E402
from millrace.common.errors import OperatorError  # noqa: E402
from millrace.config import Image  # noqa: E402
from millrace.plan import Plan, load_plan  # noqa: E402
from millrace.setup.engine import ensure_aws_plugin  # noqa: E402
from tests.moto import BIN, moto  # noqa: E402

NOT_REHEARSED = 2
IMAGE = Image(owner="self", name="rehearsal")
MANIFEST = {"store": {"version": "1", "file": "store-1.tar", "sha256": "0" * 64}}
console = Console()


def main(name: str) -> int:
    try:
        ensure_aws_plugin(console.print)
    except OperatorError as error:
        console.print(f"NOT REHEARSED: the official AWS plugin can't be had.\n{error.message}")
        return NOT_REHEARSED
    plan = with_image(load_plan(name))
    with tempfile.TemporaryDirectory() as folder, moto(Path(folder)) as environment:
        os.environ |= environment | {
            "PULUMI_BACKEND_URL": f"file://{folder}",
            "PULUMI_CONFIG_PASSPHRASE": "only a rehearsal's",
        }
        ask_moto("prepare", plan)
        rehearse(plan, Path(folder))
    console.print(f"rehearsed: {name}, with the official plugin against moto; not on AWS")
    return 0


def rehearse(plan: Plan, folder: Path) -> None:
    """From nothing to nothing, and in between what moto says of it."""
    (folder / "Pulumi.yaml").write_text((REPO / "Pulumi.yaml").read_text())
    (folder / "store-1.tar").write_text("a distribution")
    state = folder / "state"
    state.mkdir()
    program.load_plan = lambda name: plan
    program.read_manifest = lambda: MANIFEST
    aws_program.ARTIFACTS = folder
    keys.stack_state = automation.stack_state = lambda stack: state
    stack = automation.stack(plan.environment, project=folder)
    made = automation.up(stack, console.print)
    console.print(f"up: {made.changes}")
    # moto forgets the tags of a bucket's creation; the provider puts them back once.
    again = automation.up(stack)
    assert set(again.changes) <= {"update"}, again.changes
    assert automation.preview(stack) == {}, "a second preview isn't empty"
    ask_moto("verify", plan)
    automation.destroy(stack, purge=True, provider="aws")
    ask_moto("verify-gone", plan)


def with_image(plan: Plan) -> Plan:
    assert plan.aws, f"{plan.environment} isn't on AWS"
    return plan.model_copy(update={"aws": plan.aws.model_copy(update={"image": IMAGE})})


def ask_moto(question: str, plan: Plan) -> None:
    """In the environment that has boto3; fails with what it says."""
    script = Path(__file__).with_name("rehearsal_asserts.py")
    subprocess.run(
        [BIN / "python", script, question],
        input=plan.model_dump_json(),
        text=True,
        check=True,
    )


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
