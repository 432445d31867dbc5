"""`make test`: every stage in order, on a cluster of its own; the fast and cheap ones first.

`--fast` leaves out what needs a cluster; `--all` adds slower proofs on it, and the controls that
spoil its data.

The stages are plain commands, so that each can be run by hand as it is printed. The cluster is the
stack `test`: its own prefix and subnet, made from a clean slate, removed at the end (KEEP=1: kept).
"""

import os
import subprocess
import sys
import time
from pathlib import Path

from rich.console import Console
from rich.table import Table

REPO = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
STACK = "test"

console = Console()
# Spark's tests run beside the others, the slow ones each file beside the next, and Docker's beside
# the stand-in for AWS.
IN_TWO = ["-n", "2", "--dist"]
FAST = [f"tests/{part}" for part in ("unit", "infra", "api", "collector", "gateway", "jobs")]


def pytest(*arguments: str) -> list[str]:
    return [str(BIN / "python"), "-m", "pytest", "-q", "--durations=5", *arguments]


def millrace(*arguments: str) -> list[str]:
    return [str(BIN / "millrace"), *arguments]


# A machine without room for the cluster is told so before it has tested for a quarter of an hour.
ROOM_STAGES = {
    "engine": millrace("setup", "--only", "Docker engine"),
    "room": millrace("preflight"),
}
FAST_STAGES = {
    "format": [str(BIN / "ruff"), "format", "--check", "."],
    "lint": [str(BIN / "ruff"), "check", "."],
    "rooms": [str(BIN / "lint-imports"), "--no-logo"],
    "types": [str(BIN / "mypy")],
    "distributions": millrace("setup", "--only", "spark"),
    "fast tests": pytest(
        *FAST, *IN_TWO, "loadgroup", "-m", "not (engine or cluster or slow or long)"
    ),
}
CLUSTER_STAGES = {
    "setup": millrace("setup"),
    "slow tests": pytest("tests/jobs", *IN_TWO, "loadfile", "-m", "slow"),
    "ansible-lint": [str(BIN / "ansible-lint"), "--offline", "-q", str(REPO / "ansible")],
    "engine tests": pytest("tests/infra", *IN_TWO, "loadfile", "-m", "engine and not slow"),
    "clean slate": millrace("down", "--purge"),
    "up": millrace("up"),
    "deploy": millrace("deploy"),
    "hosts": pytest("tests/hosts", "-m", "not slow"),
    "api on Cassandra": pytest("tests/api", "-m", "cluster"),
    "end to end": pytest("tests/e2e", "-m", "not slow"),
    "drills": pytest("tests/drills", "-m", "not spoils and not slow"),
}
MORE_STAGES = {
    # In place of the shorter one: a log's months are free until today's traffic comes, by the last
    # of these tests and by the drills.
    "end to end": pytest("tests/e2e"),
    "long tests": pytest("tests/jobs", "-m", "long"),
    "slower proofs": pytest("tests/infra", "tests/hosts", "tests/drills", "-m", "slow"),
    "controls": pytest("tests/drills", "-m", "spoils"),
}


def main(fast: bool, everything: bool) -> int:
    """Runs the stages; stops at the first that fails. Its exit code is the suite's."""
    environment = os.environ | {
        "MILLRACE_STACK": STACK,
        "PATH": f"{BIN}{os.pathsep}{os.environ['PATH']}",
    }
    took: dict[str, float] = {}
    failed = _run(FAST_STAGES if fast else ROOM_STAGES | FAST_STAGES, environment, took)
    if not fast and not failed:
        more = MORE_STAGES if everything else {}
        failed = _run(CLUSTER_STAGES | more, environment, took)
        if os.environ.get("KEEP") == "1":
            console.print(f"the cluster stays: MILLRACE_STACK={STACK} millrace status")
        elif _was_made(took):
            subprocess.run(millrace("down", "--purge"), cwd=REPO, env=environment, check=False)
    _report(took, failed)
    return 1 if failed else 0


def _run(stages: dict[str, list[str]], environment: dict[str, str], took: dict[str, float]) -> str:
    """The name of the stage that failed, or an empty string."""
    for name, command in stages.items():
        console.rule(f"[bold]{name}")
        console.print(f"[dim]{' '.join(command)}", highlight=False, soft_wrap=True)
        start = time.monotonic()
        done = subprocess.run(command, cwd=REPO, env=environment, stdin=subprocess.DEVNULL)
        took[name] = time.monotonic() - start
        if done.returncode:
            return name
    return ""


def _was_made(took: dict[str, float]) -> bool:
    return "up" in took


def _report(took: dict[str, float], failed: str) -> None:
    table = Table(title="make test", title_justify="left")
    table.add_column("stage")
    table.add_column("seconds", justify="right")
    table.add_column("result")
    for name, seconds in took.items():
        table.add_row(name, f"{seconds:.0f}", "[red]failed" if name == failed else "[green]passed")
    table.add_section()
    table.add_row("all", f"{sum(took.values()):.0f}", "[red]failed" if failed else "[green]passed")
    console.print(table)


if __name__ == "__main__":
    sys.exit(main(fast="--fast" in sys.argv[1:], everything="--all" in sys.argv[1:]))
