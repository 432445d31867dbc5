"""`make test`: a graph of stages, at most two at once, on a cluster of its own.

`--fast` runs what needs neither a cluster nor a JVM; `--all` adds slower proofs, and the controls
that spoil the cluster's data. tests/README.md says what proves what.

The stages are plain commands, so that each can be run by hand as it is printed. The cluster is the
stack `test`: its own prefix and subnet, made from a clean slate, removed at the end (KEEP=1: kept).
`--record` adds the run's times to tests/stage-times.csv, which shows how the suite grew.
"""

import argparse
import os
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

from millrace.common.console import Console

REPO = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(REPO))

from tests import stages  # noqa: E402
from tests.stages import Stage  # noqa: E402

BIN = Path(sys.executable).parent
STACK = "test"
NO_CLUSTER = "engine or cluster or spark or extended"
PARTS = ("unit", "infra", "api", "collector", "gateway", "jobs", "fuzz")
FAST = [f"tests/{part}" for part in PARTS]


def pytest(*arguments: str) -> list[str]:
    return [str(BIN / "python"), "-m", "pytest", "-q", "--durations=5", *arguments]


def millrace(*arguments: str) -> list[str]:
    return [str(BIN / "millrace"), *arguments]


BY_FILE = ("-n", "2", "--dist", "loadfile")
CHECKS = [
    Stage("format", [str(BIN / "ruff"), "format", "--check", "."]),
    Stage("lint", [str(BIN / "ruff"), "check", "."]),
    Stage("rooms", [str(BIN / "lint-imports"), "--no-logo"]),
    Stage("types", [str(BIN / "mypy")]),
    Stage("fast tests", pytest(*FAST, *BY_FILE, "-m", f"not ({NO_CLUSTER})")),
]
# In this order as far as needs allow: what is cheap and fails often first, and a machine without
# room for the cluster says so at once. Setting up takes minutes, so it begins beside the checks.
CLUSTER = [
    Stage("engine", millrace("setup", "--only", "Docker engine")),
    Stage("room", millrace("preflight"), needs=["engine"]),
    Stage("setup", millrace("setup"), needs=["room"]),
    *CHECKS,
    Stage("clean slate", millrace("down", "--purge", "--yes"), needs=["setup"]),
    Stage("up", millrace("up"), needs=["clean slate", *(check.name for check in CHECKS)]),
    Stage("spark tests", pytest("tests/jobs", "-m", "spark and not extended"), needs=["setup"]),
    Stage("deploy", millrace("deploy"), needs=["up"]),
    Stage(
        "engine tests",
        pytest("tests/infra", "-m", "engine and not extended"),
        needs=["setup", "fast tests"],
    ),
    # One after the other: some take an edge away or hold a daemon up for a moment.
    Stage(
        "hosts",
        pytest("tests/hosts", "tests/api", "-m", "cluster and not extended"),
        needs=["deploy"],
    ),
    Stage("ansible-lint", [str(BIN / "ansible-lint"), "--offline", "-q", str(REPO / "ansible")]),
    # A fault while a log is replayed would be another test.
    Stage("end to end", pytest("tests/e2e", "-m", "not extended"), needs=["hosts", "spark tests"]),
    Stage(
        "drills",
        pytest("tests/drills", "-m", "not (spoils or extended)"),
        needs=["end to end", "engine tests", "ansible-lint"],
    ),
]
MORE = [
    Stage("extended: no cluster", pytest("tests/jobs", "tests/infra", "-m", "extended")),
    # A log's months are free until today's traffic comes, by the last of these tests and by drills.
    Stage("extended: end to end", pytest("tests/e2e", "-m", "extended"), needs=["end to end"]),
    Stage(
        "extended: hosts",
        pytest("tests/hosts", "-m", "extended"),
        needs=["drills", "extended: no cluster"],
    ),
    Stage(
        "extended: drills",
        pytest("tests/drills", "-m", "extended and not spoils"),
        needs=["extended: hosts"],
    ),
    Stage("fuzz", pytest("tests/fuzz", "-m", "extended"), needs=["extended: drills"]),
    Stage("controls", pytest("tests/drills", "-m", "spoils"), needs=["fuzz"]),
]


def suite(fast: bool, everything: bool) -> list[Stage]:
    """The stages of a run. With ``everything``, drills wait for what needs a cluster unspoiled."""
    if fast:
        return CHECKS
    if not everything:
        return CLUSTER
    before_drills = ["extended: end to end"]
    waiting = [
        replace(stage, needs=[*stage.needs, *before_drills]) if stage.name == "drills" else stage
        for stage in CLUSTER
    ]
    return [*waiting, *MORE]


def main() -> int:
    """Runs the stages; none begins after one has failed. Its exit code is the suite's."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--fast", action="store_true")
    parser.add_argument("--all", action="store_true")
    parser.add_argument("--record", action="store_true")
    asked = parser.parse_args()
    environment = os.environ | {
        "MILLRACE_STACK": STACK,
        "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
    }
    console = Console()
    results = stages.run(suite(asked.fast, asked.all), console, REPO, environment)
    if not asked.fast and os.environ.get("KEEP") == "1":
        console.print(f"the cluster stays: MILLRACE_STACK={STACK} millrace status")
    elif any(result.stage == "up" for result in results):
        subprocess.run(millrace("down", "--purge", "--yes"), cwd=REPO, env=environment, check=False)
    stages.report(results, console)
    failed = any(result.failed for result in results)
    if asked.record and not failed:
        stages.record(results, REPO)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
