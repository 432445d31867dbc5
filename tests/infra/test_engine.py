"""The real engine on real Docker: two small hosts are made, broken, changed and removed.

Every test begins with a whole cluster (`cluster` heals it) and says what it changes.
"""

import json
import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import docker
import pytest
from docker.models.containers import Container
from pulumi import automation as auto

from infra import automation, program
from millrace.common.errors import OperatorError
from millrace.common.paths import REPO, stack_state
from millrace.plan import Plan
from millrace.setup.image import image_tag
from tests.containers import on

pytestmark = pytest.mark.engine

STACK = "infra-test"
CLUSTER = f"millrace-{STACK}"
DATA = "/var/lib/millrace/store"
OTHER_IMAGE = f"{CLUSTER}-image:other"

# The program of a plain `pulumi up` here: the project's, on the tests' plan.
MAIN = """
import json, pathlib
import pulumi
from infra import program
from millrace.plan import Plan

given = json.loads(pathlib.Path("given.json").read_text())
program.load_plan = lambda name: Plan.model_validate(given["plan"])
program.image_tag = lambda: given["image"]
program.read_manifest = dict
program.program(pulumi.get_stack())
"""


class Workspace:
    """A project folder and a backend of its own, on plans that no file under configs/ makes."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.folder = folder
        self._patch = patch
        (folder / "__main__.py").write_text(MAIN)
        (folder / "Pulumi.yaml").write_text((REPO / "Pulumi.yaml").read_text())
        (folder / ".venv").symlink_to(sys.prefix)  # as it says

    def stack(self, plan: Plan, image: str | None = None) -> auto.Stack:
        """The stack, on this plan and image in the toolkit and in a plain `pulumi` alike."""
        image = image or image_tag()
        given = {"plan": plan.model_dump(mode="json"), "image": image}
        (self.folder / "given.json").write_text(json.dumps(given))
        self._patch.setattr(program, "load_plan", lambda name: plan)
        self._patch.setattr(program, "image_tag", lambda: image)
        self._patch.setattr(program, "read_manifest", dict)
        return automation.stack(STACK, project=self.folder)

    def pulumi(self, *args: str) -> str:
        """A plain `pulumi` command, as an operator types it."""
        done = subprocess.run(
            ["pulumi", *args, "--non-interactive", "--color", "never"],
            cwd=self.folder,
            env={**os.environ, **automation.engine_environment(STACK)},
            capture_output=True,
            text=True,
        )
        assert done.returncode == 0, done.stdout + done.stderr
        return done.stdout


@pytest.fixture(scope="module")
def workspace(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Workspace]:
    folder = tmp_path_factory.mktemp("project")
    backend = folder / "backend"
    backend.mkdir()
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PULUMI_BACKEND_URL", f"file://{backend}")
        patch.setenv("PULUMI_CONFIG_PASSPHRASE", "only a test's")
        yield Workspace(folder, patch)


@pytest.fixture(scope="module")
def client() -> docker.DockerClient:
    return docker.from_env()


@pytest.fixture(scope="module", autouse=True)
def _clean(workspace: Workspace, client: docker.DockerClient) -> Iterator[None]:
    sweep(client)  # an earlier run may have been killed
    yield
    automation.destroy(automation.stack(STACK, project=workspace.folder), purge=True)
    sweep(client)


def sweep(client: docker.DockerClient) -> None:
    """Removes whatever bears the tests' name, strangers included."""
    for container in client.containers.list(all=True, filters={"name": CLUSTER}):
        container.remove(force=True)
    for network in client.networks.list(names=[CLUSTER]):
        network.remove()
    for volume in client.volumes.list(filters={"name": CLUSTER}):
        volume.remove()


@pytest.fixture
def cluster(workspace: Workspace, plan: Plan) -> auto.Stack:
    stack = workspace.stack(plan)
    automation.up(stack)
    return stack


@pytest.fixture
def larger(
    workspace: Workspace, planned: Callable[..., Plan], host: Container
) -> Iterator[auto.Stack]:
    """The stack of a plan with a third host, which no other test's plan has."""
    stack = workspace.stack(planned(hosts=3))
    yield stack
    automation.destroy(stack, purge=True)


@pytest.fixture
def host(client: docker.DockerClient, cluster: auto.Stack) -> Container:
    return client.containers.get(f"{CLUSTER}-store-1")


def test_second_preview_is_empty(cluster: auto.Stack) -> None:
    assert automation.preview(cluster) == {}
    assert automation.up(cluster).changes == {}


def test_hosts_are_as_planned(cluster: auto.Stack, host: Container, client) -> None:
    assert client.networks.get(CLUSTER).attrs["IPAM"]["Config"][0]["Subnet"] == "198.18.30.0/24"
    assert on(host, "hostname -I; hostname") == "198.18.30.11 \nstore-1"
    assert on(host, "getent hosts store-2").split() == ["198.18.30.12", "store-2"]
    assert host.attrs["HostConfig"]["Memory"] == 128 * 1024 * 1024
    assert host.attrs["HostConfig"]["RestartPolicy"]["Name"] == "no"
    assert on(host, "cat /proc/sys/net/ipv4/tcp_syn_retries") == "1"
    assert not host.attrs["HostConfig"]["PortBindings"]
    assert host.labels["millrace.host"] == "store-1"
    assert automation.outputs(cluster)["endpoints"] == {"kafka": ["store-1:1", "store-2:1"]}


def test_ansibles_key_opens_the_host(host: Container) -> None:
    key = stack_state(STACK) / "ssh_key"
    options = ["-oStrictHostKeyChecking=no", "-oUserKnownHostsFile=/dev/null", "-oBatchMode=yes"]
    ssh = ["ssh", "-q", "-i", str(key), *options, "millrace@198.18.30.11", "sudo id -un"]
    # systemd needs a moment to start sshd.
    for _ in range(50):
        done = subprocess.run(ssh, capture_output=True, text=True)
        if done.returncode == 0:
            break
    assert done.stdout.strip() == "root", done.stderr


def test_artifacts_are_served_to_hosts_by_an_unprivileged_user(host: Container, client) -> None:
    server = client.containers.get(f"{CLUSTER}-artifacts")
    assert on(server, "id -un") == "nobody"
    status = "import urllib.request as u; print(u.urlopen('http://198.18.30.2:8000/').status)"
    assert on(host, f'python3 -c "{status}"') == "200"


def test_a_deleted_host_comes_back_with_its_data(cluster, host: Container, client) -> None:
    on(host, f"echo precious > {DATA}/marker")
    host.remove(force=True)
    assert automation.preview(cluster) == {"create": 1}
    assert automation.up(cluster).changes == {"create": 1}
    again = client.containers.get(host.name)
    assert again.id != host.id
    assert on(again, f"cat {DATA}/marker") == "precious"


def break_by_stop(host: Container) -> None:
    host.kill()


def break_by_pause(host: Container) -> None:
    host.pause()


def break_by_cutting_the_network(host: Container) -> None:
    host.client.networks.get(CLUSTER).disconnect(host)


@pytest.mark.extended
@pytest.mark.parametrize("fault", [break_by_stop, break_by_pause, break_by_cutting_the_network])
def test_a_broken_host_is_brought_back_as_it_is(
    cluster: auto.Stack, host: Container, fault: Callable[[Container], None]
) -> None:
    on(host, "echo installed > /opt/marker")
    fault(host)
    assert automation.up(cluster).changes == {"update": 1}
    host.reload()
    assert host.status == "running"
    assert on(host, "cat /opt/marker; hostname -I").split() == ["installed", "198.18.30.11"]


@pytest.mark.extended
def test_memory_changes_in_place(workspace, planned, host: Container) -> None:
    stack = workspace.stack(planned(memory=192))
    assert automation.preview(stack) == {"update": 2}
    assert automation.up(stack).changes == {"update": 2}
    host.reload()
    assert host.attrs["HostConfig"]["Memory"] == 192 * 1024 * 1024


@pytest.mark.extended
@pytest.mark.parametrize(
    ("limits", "name", "planned"),
    [
        ({"mem_limit": "256m", "memswap_limit": "256m"}, "Memory", 128 * 1024 * 1024),
        ({"cpu_shares": 2048}, "CpuShares", 1024),
    ],
    ids=["memory", "cores"],
)
def test_what_was_changed_by_hand_is_put_back(
    cluster: auto.Stack, host: Container, limits: dict[str, Any], name: str, planned: int
) -> None:
    host.update(**limits)
    assert automation.up(cluster).changes == {"update": 1}
    host.reload()
    assert host.attrs["HostConfig"][name] == planned


def test_a_new_host_replaces_no_other(larger: auto.Stack, host: Container) -> None:
    # its volume and container are made; the name table changes in place
    assert automation.up(larger).changes == {"create": 2, "update": 1}
    assert "198.18.30.13\tstore-3" in on(host, "cat /etc/hosts")


@pytest.mark.extended
def test_a_host_with_data_is_not_removed_by_a_smaller_plan(
    workspace, larger: auto.Stack, plan, client
) -> None:
    automation.up(larger)
    with pytest.raises(OperatorError, match="store-3-store holds data of a host"):
        automation.up(workspace.stack(plan))
    assert client.containers.get(f"{CLUSTER}-store-3").status == "running"


@pytest.mark.extended
def test_a_new_image_replaces_the_host_and_keeps_its_data(workspace, plan, host, client) -> None:
    on(host, f"echo precious > {DATA}/marker")
    client.images.get(image_tag()).tag(*OTHER_IMAGE.split(":"))
    try:
        # two hosts and the artifact server
        assert automation.up(workspace.stack(plan, OTHER_IMAGE)).changes == {"replace": 3}
        again = client.containers.get(host.name)
        assert again.id != host.id
        assert on(again, f"cat {DATA}/marker") == "precious"
    finally:
        automation.up(workspace.stack(plan))
        client.images.remove(OTHER_IMAGE)


def test_destroy_keeps_data_for_the_next_up(cluster: auto.Stack, host, client) -> None:
    on(host, f"echo precious > {DATA}/marker")
    automation.destroy(cluster, purge=False)
    assert not client.containers.list(all=True, filters={"name": CLUSTER})
    assert not client.networks.list(names=[CLUSTER])
    assert len(client.volumes.list(filters={"name": CLUSTER})) == 2
    automation.up(cluster)
    assert on(client.containers.get(host.name), f"cat {DATA}/marker") == "precious"


def test_a_purge_leaves_nothing(workspace, plan, cluster, client) -> None:
    # what a killed `up` may leave: ours by its label, unknown to the state
    labels = {"millrace.cluster": CLUSTER, "millrace.stack": STACK}
    client.volumes.create(f"{CLUSTER}-left-over", labels=labels)
    automation.destroy(cluster, purge=True)
    assert not client.containers.list(all=True, filters={"name": CLUSTER})
    assert not client.networks.list(names=[CLUSTER])
    assert not client.volumes.list(filters={"name": CLUSTER})


@pytest.mark.extended
def test_a_lost_state_takes_over_what_is_there(workspace, plan, cluster, host, client) -> None:
    on(host, f"echo precious > {DATA}/marker")
    cluster.workspace.remove_stack(STACK, force=True)
    automation.up(workspace.stack(plan))
    assert on(client.containers.get(host.name), f"cat {DATA}/marker") == "precious"


@pytest.mark.parametrize("kind", ["container", "network", "volume"])
def test_what_is_not_ours_is_refused_and_nothing_made(workspace, plan, client, kind) -> None:
    automation.destroy(workspace.stack(plan), purge=True)
    name = {"container": f"{CLUSTER}-store-2", "network": CLUSTER}.get(
        kind, f"{CLUSTER}-store-2-store"
    )
    stranger = {
        "container": partial(client.containers.create, image_tag(), name=name),
        "network": partial(client.networks.create, name),
        "volume": partial(client.volumes.create, name),
    }[kind]()
    try:
        with pytest.raises(OperatorError, match=f"a {kind} named {name} exists already"):
            automation.up(workspace.stack(plan))
        assert not client.containers.list(all=True, filters={"label": f"millrace.stack={STACK}"})
        assert not client.volumes.list(filters={"label": f"millrace.stack={STACK}"})
    finally:
        stranger.remove()


@pytest.mark.extended
def test_an_overlapping_network_is_named(workspace, plan, client) -> None:
    automation.destroy(workspace.stack(plan), purge=True)
    pool = docker.types.IPAMPool(subnet="198.18.30.128/25")
    other = client.networks.create(
        f"{CLUSTER}-other", ipam=docker.types.IPAMConfig(pool_configs=[pool])
    )
    try:
        with pytest.raises(OperatorError, match=f"overlaps .* of the Docker network {other.name}"):
            automation.up(workspace.stack(plan))
    finally:
        other.remove()


@pytest.mark.extended
def test_plain_pulumi_sees_what_the_toolkit_made(workspace, cluster: auto.Stack) -> None:
    workspace.pulumi("preview", "--expect-no-changes")
    workspace.pulumi("refresh", "--yes", "--expect-no-changes")


@pytest.mark.extended
def test_the_toolkit_sees_what_plain_pulumi_made(workspace, cluster, host: Container) -> None:
    host.remove(force=True)
    assert "+ 1 created" in workspace.pulumi("up", "--yes", "--refresh", "--skip-preview")
    assert automation.preview(cluster) == {}


@pytest.mark.extended
def test_an_abandoned_lock_is_lifted(workspace, cluster: auto.Stack) -> None:
    gone = subprocess.Popen(["true"])
    gone.wait()
    locks = workspace.folder / "backend/.pulumi/locks/organization/millrace" / STACK
    locks.mkdir(parents=True, exist_ok=True)
    lock = {"pid": gone.pid, "username": "root", "hostname": os.uname().nodename}
    (locks / "lock.json").write_text(json.dumps(lock | {"timestamp": "2026-01-01T00:00:00Z"}))
    assert automation.up(cluster).changes == {}


@pytest.mark.extended
def test_a_lock_that_is_held_is_respected(workspace, cluster: auto.Stack) -> None:
    locks = workspace.folder / "backend/.pulumi/locks/organization/millrace" / STACK
    locks.mkdir(parents=True, exist_ok=True)
    lock = {"pid": os.getpid(), "username": "root", "hostname": os.uname().nodename}
    path = locks / "lock.json"
    path.write_text(json.dumps(lock | {"timestamp": "2026-01-01T00:00:00Z"}))
    try:
        with pytest.raises(OperatorError, match="another Pulumi process is at work"):
            automation.up(cluster)
    finally:
        path.unlink()
