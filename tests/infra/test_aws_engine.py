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
from millrace.cli import operations
from millrace.common.console import Console
from millrace.common.errors import OperatorError
from millrace.common.paths import REPO
from millrace.config import (
    Environment,
    component_names,
    load_component,
    load_environment,
    load_events,
    load_names,
)
from millrace.config.jobs import load_job_settings, with_jobs
from millrace.config.lookup_tables import load_tables
from millrace.config.streams import load_streams
from millrace.plan import Plan, load_plan, make_plan

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
        (folder / "Pulumi.yaml").write_text((REPO / "Pulumi.yaml").read_text())
        (folder / "store-1.tar").write_text("a distribution")
        patch.setenv("PULUMI_BACKEND_URL", f"file://{folder}")
        patch.setenv("PULUMI_CONFIG_PASSPHRASE", "only a test's")
        patch.setenv("PATH", f"{STANDIN}{os.pathsep}{os.environ['PATH']}")
        # The state is written at the end, not after each of hundreds of resources.
        patch.setenv("PULUMI_SKIP_CHECKPOINTS", "true")
        patch.setenv("PULUMI_EXPERIMENTAL", "true")
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


@pytest.mark.parametrize(
    "name",
    [
        "dev",
        pytest.param("staging", marks=pytest.mark.extended),
        pytest.param("prod", marks=pytest.mark.extended),  # the largest
    ],
)
def test_an_environment_from_nothing_to_nothing(account: Account, name: str) -> None:
    plan = load_plan(name)
    stack = account.stack(plan)
    planned = automation.planned(stack, packs=[automation.POLICIES])
    assert {change.what for change in planned} == {"create"}
    assert {c.name for c in planned if c.kind == "Instance"} == {h.name for h in plan.hosts}
    assert account.done()["create"] == set()

    made = automation.up(stack)
    assert made.changes.keys() == {"create"}
    print(f"{name}: {made.changes['create']} resources")
    assert {s.partition(" ")[2] for s in account.done()["create"] if s.startswith(INSTANCE)} == {
        host.name for host in plan.hosts
    }
    placed = Counter(r["inputs"]["subnetId"] for r in resources(stack) if r["type"] == INSTANCE)
    assert sorted(placed.values()) == sorted(Counter(h.zone for h in plan.hosts).values())

    assert automation.planned(stack, packs=[automation.POLICIES]) == []

    automation.destroy(stack, purge=False, provider="aws")
    kept = {r["urn"].split("::")[-1] for r in resources(stack) if r["type"] == VOLUME}
    assert kept == {volume.name for host in plan.hosts for volume in host.volumes}
    assert INSTANCE not in {r["type"] for r in resources(stack)}

    automation.destroy(stack, purge=True, provider="aws")
    assert name not in {each.name for each in stack.workspace.list_stacks()}


# --- changes that must not replace what holds data ------------------------------------------------

HOLDS_DATA = (INSTANCE, VOLUME)
ATTACHMENT = "aws:ec2/volumeAttachment:VolumeAttachment"


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Account]:
    """`dev`, made. Each test previews or makes its change; the plan of the others is unchanged."""
    with pytest.MonkeyPatch.context() as patch:
        account = Account(tmp_path_factory.mktemp("running"), patch)
        automation.up(account.stack(load_plan("dev")))
        account.done()
        yield account


def change(**changes: object) -> Plan:
    """`dev` with keys of its environment changed, as ``groups__kafka__hosts=4``."""
    content = load_environment("dev").model_dump(mode="json")
    for path, value in changes.items():
        *folders, key = path.split("__")
        place = content
        for folder in folders:
            place = place[folder]
        place[key] = value
    components = {name: load_component(name) for name in component_names() - {"events"}}
    streams, environment = load_streams(), Environment.model_validate(content)
    components["spark"] = with_jobs(components["spark"], load_job_settings(streams))
    return make_plan(
        "dev", environment, components, load_events(), load_names(), streams, load_tables()
    )


NEW_IMAGE = {"owner": "136693071363", "name": "debian-12-amd64-20270101-0001", "id": None}


@pytest.mark.extended
def test_only_data_is_protected(running: Account) -> None:
    plan = load_plan("dev")
    protected = {
        r["urn"].split("::")[-1] for r in resources(running.stack(plan)) if r.get("protect")
    }
    assert protected == {"archive", "key"} | {v.name for host in plan.hosts for v in host.volumes}


def previewed(stack: auto.Stack) -> dict[str, set[str]]:
    """What an `up` would do to instances, volumes and their attachments: operation → names."""
    found: dict[str, set[str]] = {}

    def note(event: auto.EngineEvent) -> None:
        if event.resource_pre_event:
            step = event.resource_pre_event.metadata
            if step.type in (*HOLDS_DATA, ATTACHMENT) and step.op != auto.OpType.SAME:
                name = f"{step.type.rpartition(':')[2]} {step.urn.rpartition('::')[2]}"
                found.setdefault(auto.OpType(step.op).value, set()).add(name)

    stack.preview(on_event=note)
    return found


@pytest.mark.extended
@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        (
            {"groups__kafka__instance": "t3.medium"},
            {"update": {f"Instance kafka-{number}" for number in (1, 2, 3)}},
        ),
        ({"aws__image": NEW_IMAGE}, {}),
        (
            {"aws__disks__redis": {"size": 4}},
            {"update": {f"Volume millrace-dev-redis-{number}-redis" for number in (1, 2, 3)}},
        ),
        (
            {"groups__kafka__hosts": 4},
            {
                "create": {
                    "Instance kafka-4",
                    "Volume millrace-dev-kafka-4-kafka-broker",
                    "VolumeAttachment millrace-dev-kafka-4-kafka-broker",
                }
            },
        ),
    ],
    ids=["bigger instance", "new image", "bigger disk", "one more broker"],
)
def test_a_change_replaces_nothing_that_holds_data(running: Account, changes, expected) -> None:
    assert previewed(running.stack(change(**changes))) == expected


@pytest.mark.extended
def test_a_host_less_is_refused_while_its_data_is_there(running: Account) -> None:
    """By the preview that `millrace up` begins with: an update would stop in the middle."""
    plan = load_plan("dev")
    fewer = plan.model_copy(update={"hosts": [h for h in plan.hosts if h.name != "kafka-3"]})
    with pytest.raises(OperatorError, match="protect"):
        automation.preview(running.stack(fewer))


@pytest.mark.extended
def test_a_renewed_host_keeps_its_volume(running: Account) -> None:
    """What runbooks/upgrade-image.md does: one host named, one host replaced, its disk attached."""
    stack = running.stack(change(aws__image=NEW_IMAGE))
    stack.set_config("renew", auto.ConfigValue("kafka-2"))
    automation.up(stack)
    done = running.done()
    assert {
        s for s in done["create"] | done["delete"] if s.startswith((*HOLDS_DATA, ATTACHMENT))
    } == {
        f"{INSTANCE} kafka-2",
        f"{ATTACHMENT} millrace-dev-kafka-2-kafka-broker",
    }
    stack.remove_config("renew")
    assert automation.preview(stack) == {}


@pytest.mark.extended
def test_machines_change_one_at_a_time_between_verifications(running: Account) -> None:
    """What `millrace up` does about another instance type. The playbooks aren't asked here."""
    plan = change(groups__redis__instance="t3.small")
    running.stack(plan)  # its program
    steps: list[str | set[str]] = []

    def note(plan: Plan, name: str, arguments: list[str], console: Console) -> None:
        steps.append({s for s in running.done()["update"] if s.startswith(INSTANCE)})
        steps.append(" ".join([name, *arguments]))

    with running.patch.context() as patch:
        patch.setattr(operations, "run_playbook", note)
        patch.setattr(operations, "leaders", lambda plan: iter(["redis-1"]))
        patch.setattr(operations, "check_machine", lambda plan, console: None)
        stack = automation.stack
        patch.setattr(automation, "stack", lambda name, report: stack(name, project=running.folder))
        operations.make_hosts(plan, Console(quiet=True), yes=True)
    in_turn = [
        [
            f"release-host.yml --extra-vars host={name}",
            {f"{INSTANCE} {name}"},
            f"site.yml --limit {name}",
            set(),
            "verify.yml",
            set(),
        ]
        for name in ("redis-2", "redis-3", "redis-1")
    ]
    assert steps[1:] == [step for steps in in_turn for step in steps][:-1]
    assert not any(s.startswith(INSTANCE) for s in running.done()["update"])
    assert automation.preview(running.stack(plan)) == {}
    automation.up(running.stack(load_plan("dev")))
    running.done()


@pytest.mark.parametrize(
    ("key", "value", "complaint"),
    [
        ("STANDIN_ZONES", "us-east-1a us-east-1b", "us-east-1c isn't available"),
        ("STANDIN_ARCHITECTURE", "arm64", "is for arm64, the instance types are x86_64"),
    ],
)
def test_nothing_is_made_where_the_plan_cannot_be(account: Account, key, value, complaint) -> None:
    account.patch.setenv(key, value)
    stack = account.stack(load_plan("dev"))
    with pytest.raises(OperatorError, match=complaint):
        automation.up(stack)
    assert account.done()["create"] == set()


@pytest.mark.extended
def test_an_interrupted_up_goes_on(account: Account) -> None:
    """A name that another account has is known by AWS alone: `up` stops there, and can go on."""
    stack = account.stack(load_plan("dev"))
    account.patch.setenv("STANDIN_TAKEN", "archive")
    with pytest.raises(OperatorError, match="BucketAlreadyExists"):
        automation.up(stack)
    before = account.done()["create"]
    assert before
    account.patch.delenv("STANDIN_TAKEN")
    automation.up(stack)
    after = account.done()["create"]
    assert not before & after
    assert len({s for s in before | after if s.startswith(INSTANCE)}) == 19
