"""What the proxy's role makes of the plan. HAProxy itself reads it on hosts: see tests/hosts."""

import re
from pathlib import Path

import pytest

from millrace.plan import load_plan
from tests.playbooks import templated

SECRET = "s" * 43


@pytest.fixture
def configured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def configured(environment: str) -> dict[str, str]:
        """Section → its lines."""
        plan = load_plan(environment)
        folder = tmp_path / environment
        folder.mkdir()
        (folder / "operator-key").write_text(f"{SECRET}\n")
        where = {"edge_proxy_secrets": f"{folder}/"}
        text = templated("edge_proxy", "haproxy.cfg", plan, folder, where)
        parts = re.split(r"^(?=\w)", text, flags=re.M)
        return {part.splitlines()[0].strip(): part for part in parts if part[:1].isalpha()}

    return configured


@pytest.mark.parametrize(("environment", "is_local"), [("local", True), ("test", False)])
def test_plain_http_is_for_this_machine_and_where_it_says_so(configured, environment, is_local):
    found = configured(environment)
    plain = {name for name in found if name.startswith("frontend plain_")}
    assert plain == ({"frontend plain_insights", "frontend plain_intake"} if is_local else set())
    for name, section in found.items():
        binds = re.findall(r"bind (\S+)(.*)", section)
        assert all("ssl crt" in how for _, how in binds) or name in {*plain, "frontend metrics"}
    for name in plain:
        assert "deny deny_status 403 unless { src 198.18.0.1/32 }" in found[name]


def test_this_machine_s_page_gets_its_key_and_nobody_else(configured):
    holding = {name for name, section in configured("local").items() if SECRET in section}
    assert holding == {"frontend plain_insights"}
    assert not any(SECRET in section for section in configured("test").values())


@pytest.mark.parametrize("environment", ["local", "test", "prod"])
def test_nothing_listens_but_on_the_host_s_own_address(configured, environment):
    own = load_plan(environment).host("edge-2").address
    binds = [
        b for part in configured(environment).values() for b in re.findall(r"bind (\S+)", part)
    ]
    assert binds
    assert {bind.rpartition(":")[0] for bind in binds} == {own}


@pytest.mark.parametrize(("environment", "believed"), [("local", False), ("prod", True)])
def test_a_load_balancer_alone_is_believed_for_whom_it_asks(configured, environment, believed):
    found = configured(environment)
    for door in ("insights", "intake"):
        section = found[f"frontend {door}"]
        for header in ("X-Forwarded-For", "X-Amzn-Oidc-Data"):
            assert (f"del-header {header}" not in section) is believed
        assert ("conn_cur" not in section) is believed


def test_readers_stay_at_their_host_and_producers_go_to_all_in_turn(configured):
    found = configured("local")
    [own, other] = re.findall(r"server (\S+) (.*)", found["backend insights"])
    assert own[0] == "edge-2"
    assert "backup" not in own[1]
    assert other[0] == "edge-1"
    assert other[1].endswith("backup")
    assert "balance roundrobin" in found["backend intake"]
    assert "backup" not in found["backend intake"]
    for part in ("backend insights", "backend intake"):
        assert "verify required verifyhost edge-1" in found[part]
