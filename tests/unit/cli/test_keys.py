"""`millrace keys` as it is typed: what is printed where, asked, refused and changed."""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from kazoo.exceptions import BadVersionError
from typer.testing import CliRunner

from millrace.cli import app, operations
from millrace.cli import keys as commands
from millrace.cluster import keys as cluster_keys
from millrace.cluster import operator_key
from millrace.cluster.keys import Copy, KeyRegistry
from millrace.common.errors import OperatorError, UnreachableError
from millrace.plan import load_plan
from millrace_shared.keys import OPERATOR, Keys
from tests.zookeeper import Client, Nodes

PLAN = load_plan("local")
NODE = PLAN.names.zookeeper.keys
SHOP = ("add", "shop", "--stream", "events", "--rate", "20", "--scope", "insights")


@pytest.fixture
def nodes(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Nodes:
    """ZooKeeper as `up` leaves it, and a folder of the stack."""
    nodes = Nodes()
    nodes.put(NODE, b"{}")

    @contextmanager
    def registry(plan: Any) -> Iterator[KeyRegistry]:
        client: Any = Client(nodes)
        yield KeyRegistry(client, NODE, list)

    for module in (commands, operations):
        monkeypatch.setattr(module, "registry", registry)
    monkeypatch.setattr(operator_key, "stack_secrets", lambda stack: tmp_path / "secrets")
    monkeypatch.setattr(operations, "run_playbook", lambda *_: None)
    return nodes


def typed(*words: str) -> Any:
    return CliRunner().invoke(app, ["keys", *words])


def known(nodes: Nodes) -> Keys:
    return Keys.parse(nodes.content[NODE][0])


def secret_of(*words: str) -> str:
    done = typed(*words)
    assert done.exit_code == 0, done.output
    secret: str = done.stdout
    assert secret.endswith("\n")
    assert secret.strip() not in done.stderr
    return secret.strip()


def test_the_secret_alone_is_on_the_output(nodes: Nodes) -> None:
    secret = secret_of(*SHOP)
    name, key = known(nodes).find(secret, 0) or ("", None)
    assert (name, key and key.streams, key and key.events_per_second) == ("shop", ["events"], 20)
    assert secret.encode() not in nodes.content[NODE][0]
    assert secret not in typed("list").output
    assert secret not in typed("list", "--json").output


def test_a_list_says_what_each_key_may_and_who_used_it_last(nodes: Nodes) -> None:
    secret_of(*SHOP, "--expires", "2999-01-31")
    page = ("--stream", "clicks", "--public", "--rate", "500", "--client-rate", "5")
    secret_of("add", "page", *page)
    secret_of("rotate", "page", "--overlap", "1h")
    nodes.put(f"{NODE}/collector-edge-1", b'{"shop": 1000000000}')
    nodes.put(f"{NODE}/insight-api-edge-2", b'{"shop": 1000000060}')
    first, second = json.loads(typed("list", "--json").stdout)["keys"]
    assert (second["key"], second["expires"]) == ("shop", "2999-01-31T00:00:00Z")
    assert (second["used"], second["used_at"]) == ("2001-09-09T01:47:40Z", "insight-api-edge-2")
    assert (first["secrets"], bool(first["older_until"]), first["used"]) == (2, True, None)
    shown = " ".join(typed("list").output.replace("│", " ").split())
    assert "events @ 20/s" in shown
    assert "clicks @ 500/s" in shown
    assert "insight-api-edge-2" in shown


def test_after_a_rotation_both_secrets_are_taken_until_the_old_one_is_revoked(
    nodes: Nodes,
) -> None:
    first = secret_of(*SHOP)
    second = secret_of("rotate", "shop")
    assert known(nodes).find(first, 0)
    refused = typed("rotate", "shop")
    assert isinstance(refused.exception, OperatorError)
    assert refused.stdout == ""
    assert typed("revoke", "shop", "--old", "--yes").exit_code == 0
    assert not known(nodes).find(first, 0)
    assert known(nodes).find(second, 0)
    assert typed("revoke", "shop", "--yes").exit_code == 0
    assert known(nodes) == {}


def test_nobody_is_there_to_agree_so_nothing_is_revoked(nodes: Nodes) -> None:
    secret_of(*SHOP)
    refused = typed("revoke", "shop")
    assert isinstance(refused.exception, OperatorError)
    assert "Revoke shop of local?" in refused.exception.message
    assert "shop" in known(nodes)


@pytest.mark.parametrize(
    "words",
    [
        ("add", "shop", "--stream", "nothing", "--rate", "1"),
        ("add", "shop", "--scope", "nothing"),
        ("add", "Shop", "--scope", "insights"),
        ("add", "shop", "--scope", "insights", "--expires", "2001-01-01"),
        ("add", "operator", "--scope", "insights"),
        ("rotate", "shop"),
        ("rotate", "shop", "--overlap", "soon"),
        ("revoke", "shop", "--yes"),
        ("revoke", "operator", "--yes"),
    ],
)
def test_what_is_refused_changes_and_prints_nothing(nodes: Nodes, words: tuple[str, ...]) -> None:
    done = typed(*words)
    assert isinstance(done.exception, OperatorError)
    assert done.stdout == ""
    assert (nodes.writes, known(nodes)) == (0, {})


@pytest.mark.parametrize("words", [("--public",), ("--client-rate", "5")])
def test_public_and_the_rate_of_an_address_go_together(
    nodes: Nodes, words: tuple[str, ...]
) -> None:
    done = typed("add", "page", "--stream", "events", "--rate", "5", *words)
    assert done.exit_code == 2
    assert nodes.writes == 0


def test_a_zookeeper_that_does_not_answer_is_said_and_no_secret_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    @contextmanager
    def registry(plan: Any) -> Iterator[KeyRegistry]:
        raise UnreachableError("nobody answers")
        yield

    monkeypatch.setattr(commands, "registry", registry)
    done = typed(*SHOP)
    assert isinstance(done.exception, UnreachableError)
    assert done.stdout == ""


# -- The operator's own key


def operator_s(folder: Path) -> str:
    return (folder / "secrets" / "operator-key").read_text().strip()


def test_up_makes_the_operator_s_key_and_does_it_once(nodes: Nodes, tmp_path: Path) -> None:
    console: Any = None
    operator_key.ensure(PLAN, "a" * 43)
    operator_key.ensure(PLAN, "b" * 43)
    assert operator_s(tmp_path) == operator_key.secret_of(PLAN) == "a" * 43
    assert (tmp_path / "secrets" / "operator-key").stat().st_mode & 0o777 == 0o600
    assert [path.name for path in (tmp_path / "secrets").iterdir()] == ["operator-key"]
    operations.make_services(PLAN, console)
    assert known(nodes).find("a" * 43, 0)
    writes = nodes.writes
    operations.make_services(PLAN, console)
    assert nodes.writes == writes


def test_rotating_it_writes_its_file_and_prints_no_secret(nodes: Nodes, tmp_path: Path) -> None:
    operator_key.ensure(PLAN, "a" * 43)
    operations.make_services(PLAN, None)  # type: ignore[arg-type]
    done = typed("rotate", OPERATOR)
    assert (done.exit_code, done.stdout) == (0, "")
    secret = operator_s(tmp_path)
    assert secret != "a" * 43
    assert secret not in done.output
    assert known(nodes).find(secret, 0)
    assert isinstance(typed("rotate", OPERATOR).exception, OperatorError)
    assert operator_s(tmp_path) == secret
    assert [path.name for path in (tmp_path / "secrets").iterdir()] == ["operator-key"]


@pytest.mark.parametrize("content", ["", "\n", "a" * 31])
def test_an_operator_s_key_that_could_be_guessed_is_not_used(
    nodes: Nodes, tmp_path: Path, content: str
) -> None:
    (tmp_path / "secrets").mkdir()
    (tmp_path / "secrets" / "operator-key").write_text(content)
    with pytest.raises(OperatorError, match="32 bytes"):
        operator_key.ensure(PLAN, "b" * 43)


def test_it_goes_with_a_purge(tmp_path: Path, nodes: Nodes) -> None:
    folder = tmp_path / ".millrace" / "local"
    (folder / "secrets").mkdir(parents=True)
    (folder / "secrets" / "operator-key").write_text("a" * 43)
    assert operations.own_files(folder)["secrets"] == [".millrace/local/secrets/operator-key"]


# -- Two operators at once, and a ZooKeeper that has lost the keys


def at(nodes: Nodes, copies: list[Copy] | None = None) -> tuple[KeyRegistry, Client]:
    client: Any = Client(nodes)
    return KeyRegistry(client, NODE, lambda: copies or []), client


def with_key(name: str) -> commands.Key:
    return commands.Key([commands.Secret(commands.digest(name))], scopes=["insights"])


def test_two_operators_at_once_both_have_their_change(nodes: Nodes) -> None:
    registry, client = at(nodes)
    others = iter(["first", "second"])

    def meanwhile() -> None:
        if name := next(others, ""):
            keys = Keys({**known(nodes), name: with_key(name)})
            nodes.put(NODE, keys.content())

    client.before_set = meanwhile
    registry.change(commands.adding("own", with_key("own")))
    assert set(known(nodes)) == {"first", "second", "own"}


def test_others_who_never_stop_end_the_change(nodes: Nodes) -> None:
    registry, client = at(nodes)
    client.before_set = lambda: nodes.put(NODE, b"{}")
    with pytest.raises(OperatorError, match="others change keys all the time"):
        registry.change(commands.adding("own", with_key("own")))
    with pytest.raises(BadVersionError):
        client.set(NODE, b"{}", 0)


@pytest.mark.parametrize("lost", ["node", "content"])
def test_keys_that_zookeeper_lost_are_had_back_from_the_newest_copy(
    nodes: Nodes, lost: str
) -> None:
    nodes.content.clear()
    if lost == "content":
        nodes.put(NODE, b"")
    older, newer = (Keys({name: with_key(name)}).content() for name in ("older", "newer"))
    registry, _ = at(nodes, [Copy(1, older), Copy(3, newer), Copy(2, older)])
    assert set(registry.keys()) == {"newer"}
    assert registry.used() == {}
    registry.change(commands.adding("own", with_key("own")))
    assert set(known(nodes)) == {"newer", "own"}
    assert set(registry.keys()) == {"newer", "own"}


def test_the_first_keys_of_a_cluster_are_made_where_there_are_none(nodes: Nodes) -> None:
    nodes.content.clear()
    registry, _ = at(nodes)
    registry.change(commands.adding("own", with_key("own")))
    assert set(known(nodes)) == {"own"}


def test_what_is_no_keys_is_left_as_it_is(nodes: Nodes) -> None:
    nodes.put(NODE, b"[]")
    registry, _ = at(nodes)
    with pytest.raises(OperatorError, match=f"{NODE} holds no keys"):
        registry.change(commands.adding("own", with_key("own")))
    assert nodes.content[NODE][0] == b"[]"


def ran(stdout: str = "", code: int = 0) -> Any:
    return type("Done", (), {"stdout": stdout, "returncode": code})()


def test_copies_are_asked_of_each_door_s_host(monkeypatch: pytest.MonkeyPatch) -> None:
    asked: list[tuple[str, str]] = []

    def run_on(plan: Any, host: Any, command: str) -> Any:
        asked.append((host.name, command))
        return ran('17\n{"shop": 1}\n') if "collector" in command and "1" in host.name else ran()

    monkeypatch.setattr(cluster_keys, "run_on", run_on)
    assert cluster_keys.copies(PLAN) == [Copy(17, b'{"shop": 1}\n')]
    assert {name for name, _ in asked} == {"edge-1", "edge-2"}
    paths = {command.split(" {")[0].split()[-2] for _, command in asked}
    assert "/var/lib/millrace/collector/keys.json" in " ".join(command for _, command in asked)
    assert len(paths) == 2


def test_keys_begin_anew_only_where_every_host_says_that_it_has_no_copy(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(cluster_keys, "run_on", lambda *_: ran())
    assert cluster_keys.copies(PLAN) == []
    monkeypatch.setattr(
        cluster_keys, "run_on", lambda plan, host, _: ran(code=255 if host.name == "edge-2" else 0)
    )
    with pytest.raises(UnreachableError, match="edge-2 didn't say"):
        cluster_keys.copies(PLAN)
