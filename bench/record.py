"""What was measured, as JSON: on what, of which version, with which settings."""

import json
import subprocess
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from millrace.common.machine import this_machine
from millrace.common.paths import REPO, stack_name, stack_state

RECORDS = REPO / "docs" / "performance"

Record = dict[str, Any]


def new_record(kind: str, settings: dict[str, Any], result: dict[str, Any]) -> Record:
    """``kind`` is the bench and its step; the result's form is that of its kind."""
    return {
        "kind": kind,
        "taken": f"{datetime.now(UTC):%Y-%m-%dT%H:%M:%SZ}",
        "version": _version(),
        "machine": vars(this_machine()),
        "settings": settings,
        "result": result,
    }


def keep(record: Record, public: bool) -> Path:
    """Writes it; the documents have one of each name, the newest."""
    if public:
        path = RECORDS / f"{name(record)}.json"
    else:
        moment = record["taken"].translate(str.maketrans("", "", "-:"))
        path = stack_state(stack_name()) / "bench" / f"{name(record)}-{moment}.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(record, indent=1) + "\n")
    return path


def name(record: Record) -> str:
    """By its kind, how many pages and jobs there were, and for how long the service had rested."""
    settings = record["settings"]
    parts = [record["kind"]]
    if pages := settings.get("pages"):
        parts.append(f"{pages}-pages")
    if jobs := settings.get("jobs"):
        parts.append(f"{len(jobs)}-jobs")
    if rested := settings.get("after_idle"):
        parts.append(f"after-{rested / 60:g}-min-idle")
    return "-".join(parts)


def read_records(folder: Path = RECORDS) -> list[Record]:
    """By name."""
    return [json.loads(path.read_text()) for path in sorted(folder.glob("*.json"))]


def _version() -> str:
    """The commit, with a sign when files differ from it."""
    said = subprocess.run(
        ["git", "describe", "--always", "--dirty", "--abbrev=12"],
        cwd=REPO,
        capture_output=True,
        text=True,
        check=False,
    )
    return said.stdout.strip() or "unknown"
