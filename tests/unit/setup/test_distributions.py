"""Locks, tarballs and the manifest: what reaches the hosts is what was pinned."""

import hashlib
import json
import os
import shutil
import subprocess
import tarfile
import threading
import zipfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from millrace.common.errors import OperatorError
from millrace.setup import artifacts, debian, distributions, locks, packages
from millrace.setup.archive import write_tar
from millrace.setup.distributions import Places
from millrace.setup.locks import Jar, parse_jar, read_lock, write_lock
from millrace.setup.maven import LISTED
from millrace.setup.relock import excluded
from millrace.setup.versions import Distribution, Unpack, load_versions
from tests.waiting import pause

BYTES = b"a jar, as far as anyone here can tell"
SHA256 = hashlib.sha256(BYTES).hexdigest()
FILES = {
    "usr/bin/exporter": 0o755,
    "usr/sbin/exporterd": 0o755,
    "usr/lib/x86_64-linux-gnu/libexporter.so.1.1.0": 0o644,
    "usr/lib/exporter/helper": 0o755,
    "usr/share/exporter/page.html": 0o644,
    "usr/share/doc/exporter/README": 0o644,
    "lib/systemd/system/exporter.service": 0o644,
}
CONTROL = """\
Package: exporter
Version: 1.0
Architecture: all
Maintainer: nobody <nobody@example.org>
Description: a program and its unit
"""


@pytest.fixture
def at(tmp_path) -> Places:
    """Artifacts, lock and launchers of the test's own, and a Maven that copies BYTES."""
    launchers = tmp_path / "launchers"
    (launchers / "common" / "bin").mkdir(parents=True)
    (launchers / "common" / "bin" / "run").write_text("#!/bin/sh\n")
    (launchers / "tool").mkdir()
    (launchers / "tool" / "commands").write_text("# name, class\ntool-run  org.example.Tool\n")
    write_lock(tmp_path / "tool.lock", [parse_jar("org.example:tool:1.0", SHA256)])
    return Places(artifacts=tmp_path, locks=tmp_path, launchers=launchers, fetch=_fetch)


@pytest.fixture
def cache(at) -> Path:
    return at.artifacts


def _fetch(jars: list[Jar], folder: Path) -> None:
    for jar in jars:
        (folder / jar.filename).write_bytes(BYTES)


TOOL = Distribution(version="1.0", jars=["org.example:tool:1.0"])


def ensure(at: Places, distribution: Distribution = TOOL) -> list[str]:
    said: list[str] = []
    distributions.ensure("tool", distribution, said.append, at)
    return said


def test_a_lock_is_read_as_it_was_written(tmp_path):
    jars = [
        parse_jar("org.example:a:1.0", SHA256),
        parse_jar("org.example:a:1.0:linux-x86_64", SHA256),
    ]
    write_lock(tmp_path / "x.lock", jars)
    assert read_lock(tmp_path / "x.lock") == jars
    assert [jar.filename for jar in jars] == ["a-1.0.jar", "a-1.0-linux-x86_64.jar"]


@pytest.mark.parametrize(
    ("line", "complaint"),
    [
        ("org.example:a:1.0", "x.lock:1: expected"),
        (f"{SHA256[:-1]}  org.example:a:1.0", "x.lock:1: expected"),
        (f"{SHA256}  org.example:a", "x.lock:1: expected"),
        (f"{SHA256}  g:a:1\n{SHA256}  other:a:1", "x.lock:2: a-1.jar stands twice"),
    ],
)
def test_a_damaged_lock_is_refused_with_its_line(tmp_path, line, complaint):
    (tmp_path / "x.lock").write_text(line + "\n")
    with pytest.raises(OperatorError, match=complaint):
        read_lock(tmp_path / "x.lock")


def test_the_committed_locks_hold_every_root():
    for name, distribution in load_versions().distributions.items():
        if distribution.jars:
            locked = {jar.coordinates for jar in read_lock(locks.lock_path(name))}
            assert locked >= set(distribution.jars)
            assert locked >= {rule.jar for rule in distribution.unpack}


def test_a_jar_with_other_bytes_is_refused_by_name(at, cache):
    write_lock(cache / "tool.lock", [parse_jar("org.example:tool:1.0", "0" * 64)])
    with pytest.raises(OperatorError, match=r"org\.example:tool:1\.0: checksum mismatch"):
        ensure(at)
    assert not list(cache.glob("*.tar"))
    assert not (cache / artifacts.MANIFEST).exists()


def test_a_tarball_holds_jars_and_launchers_and_is_in_the_manifest(at, cache):
    ensure(at)
    entry = artifacts.read_manifest(cache)["tool"]
    tarball = cache / entry["file"]
    assert entry["sha256"] == hashlib.sha256(tarball.read_bytes()).hexdigest()
    with tarfile.open(tarball) as tar:
        modes = {member.name: member.mode for member in tar if member.isfile()}
        command = tar.extractfile("bin/tool-run").read().decode()
    assert modes == {"bin/run": 0o755, "bin/tool-run": 0o755, "lib/tool-1.0.jar": 0o644}
    assert 'run" org.example.Tool "$@"' in command


def test_a_build_is_reproducible_and_not_repeated(at, cache):
    ensure(at)
    first = artifacts.read_manifest(cache)
    assert ensure(at) == [f"{first['tool']['version']}, already built"]
    (cache / first["tool"]["file"]).unlink()
    ensure(at)
    assert artifacts.read_manifest(cache) == first


def test_a_changed_launcher_is_a_new_version_and_the_old_tarball_goes(at, cache):
    ensure(at)
    before = artifacts.read_manifest(cache)["tool"]
    (cache / "launchers" / "common" / "bin" / "run").write_text("#!/bin/sh\n# other\n")
    ensure(at)
    after = artifacts.read_manifest(cache)["tool"]
    assert after["version"] != before["version"]
    assert [path.name for path in cache.glob("*.tar")] == [after["file"]]


def test_an_interrupted_build_does_not_spoil_the_next(at, cache):
    (cache / ".tool.partial" / "lib").mkdir(parents=True)
    (cache / ".tool.partial" / "lib" / "left-over.jar").write_text("half")
    ensure(at)
    with tarfile.open(cache / artifacts.read_manifest(cache)["tool"]["file"]) as tar:
        assert "lib/left-over.jar" not in tar.getnames()


def test_the_tar_depends_on_content_alone(tmp_path):
    for name, mode, when in [("one", 0o600, 1), ("two", 0o664, 2)]:
        (tmp_path / name / "b").mkdir(parents=True, mode=0o700)
        file = tmp_path / name / "b" / "file"
        file.write_text("same")
        file.chmod(mode)
        os.utime(file, (when, when))
        write_tar(tmp_path / name, tmp_path / f"{name}.tar")
    assert (tmp_path / "one.tar").read_bytes() == (tmp_path / "two.tar").read_bytes()


def test_only_the_named_folder_of_a_jar_is_unpacked(tmp_path):
    with zipfile.ZipFile(tmp_path / "mini.jar", "w") as jar:
        jar.writestr("webapps/hdfs/index.html", "page")
        jar.writestr("org/Example.class", "code")
    distributions.extract(tmp_path / "mini.jar", "webapps", tmp_path / "share")
    files = [path for path in (tmp_path / "share").rglob("*") if path.is_file()]
    assert files == [tmp_path / "share" / "webapps" / "hdfs" / "index.html"]
    with pytest.raises(OperatorError, match=r"mini\.jar holds no pages/"):
        distributions.extract(tmp_path / "mini.jar", "pages", tmp_path / "share")


def test_a_missing_manifest_says_what_to_run(cache):
    with pytest.raises(OperatorError) as refused:
        artifacts.read_manifest(cache)
    assert refused.value.hint == "run `millrace setup`"


def test_a_damaged_manifest_is_named(cache):
    (cache / artifacts.MANIFEST).write_text(json.dumps({})[:-1])
    with pytest.raises(OperatorError, match=r"manifest\.json: not valid JSON"):
        artifacts.read_manifest(cache)


@pytest.mark.parametrize(
    ("line", "found"),
    [
        ("   io.netty:netty-common:jar:4.1.119.Final:compile -- module x", ("4.1.119.Final", None)),
        (
            "   io.netty:netty-tcnative:jar:linux-x86_64:2.0.70.Final:runtime",
            ("2.0.70.Final", "linux-x86_64"),
        ),
        ("   org.scala-lang:scala-library:jar:2.13.18:compile", ("2.13.18", None)),
    ],
)
def test_mavens_listing_is_understood(line, found):
    match = LISTED.match(line)
    assert (match[4], match[3]) == found


def test_excluded_patterns_match_coordinates():
    distribution = Distribution(
        version="1", exclude=["com.microsoft.sqlserver:*"], unpack=[Unpack(jar="a:b:1", path="c")]
    )
    assert excluded(parse_jar("com.microsoft.sqlserver:mssql-jdbc:6"), distribution)
    assert not excluded(parse_jar("org.example:mssql:6"), distribution)


def test_programs_out_of_debian_packages_can_be_run(at, cache, monkeypatch):
    def install(packages, root):
        for package in packages:
            (root / "bin" / package).write_bytes(b"\x7fELF")
            (root / "bin" / package).chmod(0o755)

    monkeypatch.setattr(distributions.debian, "install", install)
    ensure(at, Distribution(version="1.0", debian=["exporter"]))
    with tarfile.open(cache / artifacts.read_manifest(cache)["tool"]["file"]) as tar:
        modes = {member.name: member.mode for member in tar if member.isfile()}
    assert modes == {"bin/tool-run": 0o755, "bin/exporter": 0o755}


def test_no_apt_runs_under_an_installation(tmp_path, monkeypatch):
    """An update may empty the machine's archive, and with it what is being installed."""
    running, overlapped = threading.Lock(), []

    def run(command, **_):
        if "download" in command:  # into the folder it is run in, and empties nothing
            pass
        elif running.acquire(blocking=False):
            pause(0.05, "an installation takes a while")
            running.release()
        else:
            overlapped.append(command)

    monkeypatch.setattr(debian, "run", run)
    monkeypatch.setattr(packages, "run", run)
    monkeypatch.setattr(packages, "_find", lambda command: None)
    with ThreadPoolExecutor() as threads:
        threads.submit(packages.ensure_command, "debootstrap", ["debootstrap"])
        threads.submit(debian._fetch, ["exporter"], tmp_path)
    assert overlapped == []


def test_of_a_debian_package_only_what_its_programs_need_is_taken(tmp_path, monkeypatch):
    def fetch(packages, scratch):
        made = scratch / "made"
        (made / "DEBIAN").mkdir(parents=True, mode=0o755)
        (made / "DEBIAN" / "control").write_text(CONTROL)
        for file, mode in FILES.items():
            (made / file).parent.mkdir(parents=True, exist_ok=True)
            (made / file).write_text("#!/bin/sh\n")
            (made / file).chmod(mode)
        (made / "usr/share/exporter/jquery").symlink_to("../javascript/jquery")
        (made / "usr/sbin/alternative").symlink_to("/etc/hostname")
        (made / "usr/lib/x86_64-linux-gnu/libexporter.so.1").symlink_to("libexporter.so.1.1.0")
        package = scratch / "exporter.deb"
        subprocess.run(["dpkg-deb", "--build", made, package], check=True, capture_output=True)
        return [package]

    monkeypatch.setattr(debian, "ensure_file", lambda path, packages: None)
    monkeypatch.setattr(debian, "_fetch", fetch)
    (tmp_path / "bin").mkdir()
    debian.install(["exporter"], tmp_path)
    found = [path for path in tmp_path.rglob("*") if not path.is_dir()]
    assert {str(path.relative_to(tmp_path)): path.stat().st_mode & 0o777 for path in found} == {
        "bin/exporter": 0o755,
        "sbin/exporterd": 0o755,
        "lib/libexporter.so.1": 0o644,
        "lib/libexporter.so.1.1.0": 0o644,
        "share/exporter/page.html": 0o644,
    }


def test_nft_is_run_with_the_libraries_of_its_distribution(tmp_path):
    shutil.copytree(distributions.LAUNCHERS / "nftables", tmp_path / "nftables-1")
    (tmp_path / "nftables").symlink_to("nftables-1")
    (tmp_path / "nft").symlink_to("nftables/bin/nft")
    (tmp_path / "nftables-1" / "sbin").mkdir()
    program = tmp_path / "nftables-1" / "sbin" / "nft"
    program.write_text('#!/bin/sh\necho "$LD_LIBRARY_PATH" "$@"\n')
    program.chmod(0o755)
    said = subprocess.check_output(["sh", tmp_path / "nft", "list", "a b"], text=True)
    assert said == f"{tmp_path}/nftables-1/lib list a b\n"


def test_every_python_environment_has_a_python() -> None:
    for name, distribution in load_versions().distributions.items():
        if distribution.python and not distribution.jars:
            folders = distributions.launcher_folders(name, distribution)
            assert [folder for folder in folders if (folder / "bin" / "python").exists()], name
