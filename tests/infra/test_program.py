"""What the program declares, seen by Pulumi's mocks: no engine, no Docker."""

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pulumi
import pytest
from pulumi.runtime import rpc
from pulumi.runtime.mocks import MockCallArgs, MockMonitor, MockResourceArgs, Mocks

from infra import program
from infra.local import hosts_file_content
from millrace.common.errors import OperatorError
from millrace.plan import Plan

IMAGE = "millrace/host:test"
MANIFEST = {"store": {"version": "1", "file": "store-1.tar.gz", "sha256": "0" * 64}}
PREFIX = "pulumi-python:dynamic/millrace:"


@dataclass(frozen=True)
class Declared:
    kind: str
    name: str
    parent: str
    protect: bool
    properties: dict[str, Any]


class Echo(Mocks):
    """Every resource comes back with an id and the properties it was given."""

    def new_resource(self, args: MockResourceArgs) -> tuple[str, dict[str, Any]]:
        return f"{args.name}-id", args.inputs

    def call(self, args: MockCallArgs) -> dict[str, Any]:
        raise AssertionError(f"the program calls nothing, but called {args.token}")


class Recorder(MockMonitor):
    """Pulumi's mocks don't show parents and protection; the requests they answer do."""

    def __init__(self) -> None:
        super().__init__(Echo())
        self.declared: list[Declared] = []

    def RegisterResource(self, request):
        self.declared.append(
            Declared(
                kind=request.type.removeprefix(PREFIX),
                name=request.name,
                parent=request.parent,
                protect=request.protect,
                properties=rpc.deserialize_properties(request.object),
            )
        )
        return super().RegisterResource(request)

    def all(self, kind: str) -> dict[str, Declared]:
        return {each.name: each for each in self.declared if each.kind == kind}


@pytest.fixture
def declare(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Callable[[Plan], tuple[Recorder, dict[str, Any]]]:
    """Runs the program on a plan: what it declared, and what it exported."""
    monkeypatch.setattr(program, "refuse_conflicts", lambda plan, image: None)
    monkeypatch.setattr(program, "ensure_ssh_key", lambda stack: "ssh-ed25519 AAAA test")
    monkeypatch.setattr(program, "stack_state", lambda stack: tmp_path)

    def run(plan: Plan) -> tuple[Recorder, dict[str, Any]]:
        exported: dict[str, Any] = {}
        monkeypatch.setattr(pulumi, "export", exported.__setitem__)
        recorder = Recorder()
        pulumi.runtime.set_mocks(recorder.mocks, monitor=recorder)
        pulumi.runtime.test(lambda: program.declare(plan, IMAGE, MANIFEST))()
        return recorder, exported

    return run


def test_as_many_hosts_and_volumes_as_planned(declare, planned) -> None:
    plan = planned(hosts=3)
    recorder, _ = declare(plan)
    assert recorder.all("Host").keys() == {"store-1", "store-2", "store-3"}
    assert len(recorder.all("Volume")) == 3
    assert len(recorder.all("Network")) == 1
    assert len(recorder.all("HostsFile")) == 1
    assert len(recorder.all("ArtifactServer")) == 1


def test_a_host_is_what_the_plan_says(declare, plan: Plan, tmp_path: Path) -> None:
    recorder, _ = declare(plan)
    host = recorder.all("Host")["store-2"].properties
    host.pop("__provider")
    assert host == {
        "cluster": "millrace-infra-test",
        "stack": "infra-test",
        "name": "millrace-infra-test-store-2",
        "hostname": "store-2",
        "image": IMAGE,
        "network": "network-id",
        "network_name": "millrace-infra-test",
        "address": "198.18.30.12",
        "memory": 128,
        "cpu_weight": 1,
        "state": "running",
        "hosts_file": str(tmp_path / "hosts"),
        "authorized_key": "ssh-ed25519 AAAA test",
        "volumes": [
            {"name": "millrace-infra-test-store-2-store", "path": "/var/lib/millrace/store"}
        ],
        "sysctls": {"net.core.somaxconn": "4096", "net.ipv4.tcp_syn_retries": "1"},
    }


def test_data_volumes_are_protected_and_nothing_else_is(declare, plan: Plan) -> None:
    recorder, _ = declare(plan)
    protected = {each.name for each in recorder.declared if each.protect}
    assert protected == {volume.name for host in plan.hosts for volume in host.volumes}


def test_everything_stands_under_the_cluster(declare, plan: Plan) -> None:
    recorder, _ = declare(plan)
    (cluster,) = recorder.all("millrace:local:Cluster").values()
    assert cluster.name == "millrace-infra-test"
    children = [each for each in recorder.declared if each is not cluster]
    assert children
    assert all(each.parent.endswith("::millrace-infra-test") for each in children)


def test_names_and_labels_carry_the_cluster(declare, plan: Plan) -> None:
    recorder, _ = declare(plan)
    for kind in ("Network", "Volume", "Host", "ArtifactServer"):
        for each in recorder.all(kind).values():
            assert each.properties["name"].startswith("millrace-infra-test"), each
            assert each.properties["cluster"] == "millrace-infra-test"
            assert each.properties["stack"] == "infra-test"


def test_outputs(declare, plan: Plan) -> None:
    _, exported = declare(plan)
    assert exported["inventory"]["store"]["hosts"] == ["store-1", "store-2"]
    assert exported["endpoints"] == {"kafka": ["store-1:1", "store-2:1"]}
    assert exported["plan_digest"] == plan.digest


def test_a_dead_hosts_name_still_resolves(plan: Plan) -> None:
    assert hosts_file_content(plan).splitlines() == [
        "127.0.0.1\tlocalhost",
        "::1\tip6-localhost ip6-loopback",
        "198.18.30.11\tstore-1",
        "198.18.30.12\tstore-2",
    ]


def test_an_operators_mistake_is_shown_without_a_traceback(monkeypatch) -> None:
    def refuse(name: str) -> Plan:
        raise OperatorError("configs: no", "do this")

    monkeypatch.setattr(program, "load_plan", refuse)
    with pytest.raises(pulumi.RunError, match="configs: no\ndo this"):
        program.program("nowhere")
