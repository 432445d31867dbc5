"""The Pulumi engine: found, downloaded, or built from its Go module.

Its folder in the cache is whole when the CLI is there: everything that stands beside the CLI is put
in place first, and the CLI arrives by a rename. So an interrupted set-up starts this step again.
"""

import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from importlib import metadata
from pathlib import Path

from millrace.common.errors import OperatorError
from millrace.common.paths import CACHE, REPO
from millrace.setup.processes import run
from millrace.setup.versions import load_versions

Report = Callable[[str], None]

MODULE = REPO / "tools" / "pulumi-engine"
HOST = MODULE / "pulumi-language-python"
# What this project never asks of Pulumi (Azure, Google Cloud, `pulumi logs`) brings 380 of 1,690
# packages. These files stand in their place, each by its path.
STUBS = MODULE / "_stubs"
CLI_PACKAGE = "github.com/pulumi/pulumi/pkg/v3/cmd/pulumi"
SDK_MODULE = "github.com/pulumi/pulumi/sdk/v3"
# What the Python SDK brings to stand beside the CLI: the runner of programs, and of the dynamic
# resources that the local hosts are.
SDK_FILES = (
    "python/cmd/pulumi-language-python-exec",
    "python/dist/pulumi-resource-pulumi-python",
)
DOWNLOAD_SECONDS = 300
REPORT_EVERY_SECONDS = 15


def ensure_engine(report: Report) -> Path:
    """The path of a ``pulumi`` that works; the slowest way to get one takes some minutes."""
    if on_path := shutil.which("pulumi"):
        return Path(on_path)
    version = load_versions().pulumi
    root = CACHE / f"pulumi-{version}"
    engine = root / "bin" / "pulumi"
    if not engine.exists():
        report(f"downloading the Pulumi engine {version}")
        if not _download(root, version):
            report("the official release can't be downloaded; building the engine from source")
            build(engine.parent, version, report)
    _renew_host(engine.parent)
    return engine


def _renew_host(folder: Path) -> None:
    """Puts this checkout's language host beside a CLI that an earlier one built."""
    beside = folder / HOST.name
    if not beside.exists() or beside.read_bytes() == HOST.read_bytes():
        return
    if not beside.read_bytes().startswith(b"#!"):
        return  # a program of the official release
    partial = beside.with_suffix(".partial")
    _install(HOST, partial)
    partial.rename(beside)


def ensure_aws_plugin(report: Report) -> None:
    """The provider that pulumi-aws speaks to, of the SDK's version."""
    engine = ensure_engine(report)
    version = metadata.version("pulumi-aws")
    # Installed already: it says so and does nothing.
    command = [str(engine), "plugin", "install", "resource", "aws", version]
    report(f"installing the plugin pulumi-resource-aws {version}")
    hint = f"where Pulumi's plugins can be downloaded: pulumi plugin install resource aws {version}"
    run(command, what=f"installing pulumi-resource-aws {version}", hint=hint)


def _download(root: Path, version: str) -> bool:
    """The official release; False when it can't be had in a bounded time."""
    # Built aside and renamed: a download cut short must not pass for an engine.
    partial = root.with_name(f"{root.name}.partial")
    script = (
        "import sys; from semver import VersionInfo; from pulumi.automation import PulumiCommand;"
        "PulumiCommand.install(root=sys.argv[1], version=VersionInfo.parse(sys.argv[2]))"
    )
    # A process of its own, because neither the SDK nor the installer it starts knows a time-out.
    installer = subprocess.Popen(
        [sys.executable, "-c", script, str(partial), version],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        installed = installer.wait(DOWNLOAD_SECONDS) == 0
    except subprocess.TimeoutExpired:
        installed = False
    finally:
        _end(installer)
    if installed:
        shutil.rmtree(root, ignore_errors=True)
        partial.rename(root)
    shutil.rmtree(partial, ignore_errors=True)
    return installed


def _end(process: subprocess.Popen) -> None:
    """Ends a process and everything it started."""
    if process.poll() is None:
        os.killpg(process.pid, signal.SIGTERM)
        process.wait()


def build(folder: Path, version: str, report: Report) -> None:
    """The CLI from its Go module, with the language host and the SDK's two programs beside it."""
    if not shutil.which("go"):
        raise OperatorError(
            "the Pulumi engine is missing: its release can't be downloaded and there is no Go "
            "to build it with",
            "install Pulumi (https://www.pulumi.com/docs/install/) or Go 1.25 or newer",
        )
    folder.mkdir(parents=True, exist_ok=True)
    partial = folder / "pulumi.partial"
    with tempfile.TemporaryDirectory(prefix="pulumi-engine-") as work:
        _compile(_sources(Path(work), report), partial, version, report)
    sdk = Path(
        run(
            ["go", "list", "-m", "-f", "{{.Dir}}", SDK_MODULE], what="locating the SDK", cwd=MODULE
        ).strip()
    )
    for source in (HOST, *(sdk / file for file in SDK_FILES)):
        _install(source, folder / source.name)
    partial.rename(folder / "pulumi")


def _sources(work: Path, report: Report) -> Path:
    """A copy of the module with all packages that it needs, the stubs in their places.

    They are copied into it (`go mod vendor`), because Go refuses to build changed files of its
    module cache.
    """
    module = work / "module"
    shutil.copytree(MODULE, module, ignore=shutil.ignore_patterns(STUBS.name))
    report("fetching the Pulumi engine's Go modules")
    hint = "a Go module proxy must be reachable (see `go env GOPROXY`)"
    run(["go", "mod", "vendor"], what="fetching the engine's Go modules", hint=hint, cwd=module)
    put_stubs(module / "vendor")
    return module


def put_stubs(vendor: Path) -> None:
    """Writes each stub over its original; one whose original is gone is a mistake of ours."""
    for stub in sorted(STUBS.rglob("*.go")):
        original = vendor / stub.relative_to(STUBS)
        if not original.exists():
            raise OperatorError(
                f"tools/pulumi-engine/_stubs: nothing to replace at {stub.relative_to(STUBS)}",
                "this version of Pulumi has moved it: mend or remove the stub",
            )
        original.write_bytes(stub.read_bytes())


def _compile(module: Path, target: Path, version: str, report: Report) -> None:
    # A command line that mostly waits needs no optimising, and nobody debugs it: without the two
    # compilers take a third less.
    quick = ["-gcflags", "all=-N -l -dwarf=false"]
    linking = f"-s -w -X {SDK_MODULE}/go/common/version.Version=v{version}"
    command = ["go", "build", "-v", "-trimpath", *quick, "-ldflags", linking, "-o", str(target)]
    compiler = subprocess.Popen(
        [*command, CLI_PACKAGE], cwd=module, stderr=subprocess.PIPE, text=True
    )
    said = _follow(compiler, report)
    if compiler.wait():
        raise OperatorError("\n".join(["building the Pulumi engine failed:", *said[-10:]]))


def _follow(compiler: subprocess.Popen, report: Report) -> list[str]:
    """Reads what the compiler says (a line for each package) and reports on it now and then."""
    lines: list[str] = []
    reported = time.monotonic()
    for line in compiler.stderr or ():
        lines.append(line.rstrip())
        if time.monotonic() - reported > REPORT_EVERY_SECONDS:
            report(f"building the Pulumi engine: {len(lines)} packages so far")
            reported = time.monotonic()
    return lines


def _install(source: Path, target: Path) -> None:
    # The module cache is read-only; a plain copy would keep that and refuse the next copy.
    shutil.copyfile(source, target)
    target.chmod(0o755)
