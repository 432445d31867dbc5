"""Where the engine comes from, and the secrets that are made once."""

import stat
from pathlib import Path

import pytest

from infra import keys
from millrace.common.errors import OperatorError
from millrace.setup import engine


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """An empty cache, and no `pulumi` on PATH."""
    monkeypatch.setattr(engine, "CACHE", tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    return tmp_path


def test_an_engine_on_the_path_is_used(cache: Path) -> None:
    (cache / "pulumi").touch(mode=0o755)
    assert engine.ensure_engine(pytest.fail) == cache / "pulumi"


def test_a_cached_engine_is_used(cache: Path) -> None:
    cached = cache / f"pulumi-{engine.load_versions().pulumi}" / "bin" / "pulumi"
    cached.parent.mkdir(parents=True)
    cached.touch()
    assert engine.ensure_engine(pytest.fail) == cached


@pytest.mark.parametrize(
    ("found", "kept"), [("#!/usr/bin/env python3\n# an earlier one", False), ("\x7fELF", True)]
)
def test_an_earlier_checkouts_language_host_is_renewed(cache: Path, found: str, kept: bool) -> None:
    cached = cache / f"pulumi-{engine.load_versions().pulumi}" / "bin" / "pulumi"
    cached.parent.mkdir(parents=True)
    cached.touch()
    host = cached.with_name("pulumi-language-python")
    host.write_text(found)
    engine.ensure_engine(pytest.fail)
    assert host.read_text() == (found if kept else engine.HOST.read_text())
    assert [path.name for path in cached.parent.glob("*.partial")] == []


def test_an_engine_is_built_only_when_it_cannot_be_downloaded(cache: Path, monkeypatch) -> None:
    built = []
    monkeypatch.setattr(engine, "build", lambda folder, version, report: built.append(folder))
    monkeypatch.setattr(engine, "_download", lambda root, version: True)
    engine.ensure_engine(lambda message: None)
    assert built == []
    monkeypatch.setattr(engine, "_download", lambda root, version: False)
    wanted = engine.ensure_engine(lambda message: None)
    assert built == [wanted.parent]


def test_a_download_that_hangs_is_given_up(cache: Path, monkeypatch) -> None:
    monkeypatch.setattr(engine, "DOWNLOAD_SECONDS", 0.2)
    hanging = cache / "python"
    hanging.write_text("#!/bin/sh\nexec /bin/sleep 60\n")
    hanging.chmod(0o755)
    monkeypatch.setattr(engine.sys, "executable", str(hanging))
    assert engine._download(cache / "pulumi-1", "1.0.0") is False
    assert not (cache / "pulumi-1").exists()


def test_without_go_the_operator_is_told_what_to_install(cache: Path) -> None:
    with pytest.raises(OperatorError, match="no Go to build it with"):
        engine.build(cache, "1.0.0", pytest.fail)


def test_each_stub_stands_where_its_original_was(tmp_path: Path) -> None:
    stubs = [stub.relative_to(engine.STUBS) for stub in engine.STUBS.rglob("*.go")]
    assert len(stubs) > 0
    for stub in stubs:
        original = tmp_path / stub
        original.parent.mkdir(parents=True, exist_ok=True)
        original.write_text("package original")
    engine.put_stubs(tmp_path)
    for stub in stubs:
        assert (tmp_path / stub).read_bytes() == (engine.STUBS / stub).read_bytes()
    (tmp_path / stubs[-1]).unlink()
    with pytest.raises(OperatorError, match=f"nothing to replace at {stubs[-1]}"):
        engine.put_stubs(tmp_path)


def test_the_passphrase_is_made_once_and_for_its_owner_only(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(keys, "STATE", tmp_path)
    path = keys.ensure_passphrase()
    first = path.read_text()
    assert len(first) > 30
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert keys.ensure_passphrase().read_text() == first


def test_the_key_is_made_once(tmp_path: Path, monkeypatch) -> None:
    monkeypatch.setattr(keys, "stack_state", lambda stack: tmp_path)
    public = keys.ensure_ssh_key("any")
    assert public.startswith("ssh-ed25519 ")
    assert keys.ensure_ssh_key("any") == public
    assert stat.S_IMODE((tmp_path / "ssh_key").stat().st_mode) == 0o600
