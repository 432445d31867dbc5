"""README.md of each Ansible role, from its argument_specs: what it makes, then its options."""

import re
from pathlib import Path
from typing import Any

import yaml

from millrace.common.paths import ANSIBLE

# The plan, this host in it, and what one service alone reads; no file's and no module's name.
INVENTORY = re.compile(
    r"\b(millrace_(?:host|deployments|streams)|millrace(?=\.(?!conf\b|cli\b|setup\b)[a-z]))\b"
)
CODE = re.compile(r"C\(([^)]*)\)")  # Ansible's markup


def role_readmes() -> dict[Path, str]:
    """README.md of every role → what it is to hold. Its first line says what the role makes."""
    return {
        path.parents[1] / "README.md": _readme(yaml.safe_load(path.read_text())["argument_specs"])
        + _reads(path.parents[1])
        for path in sorted((ANSIBLE / "roles").glob("*/meta/argument_specs.yml"))
    }


def _reads(role: Path) -> str:
    """Returns what it takes of the inventory, which isn't an option: every host has it."""
    folders = ("defaults", "vars", "tasks", "templates")
    files = [path for name in folders for path in (role / name).rglob("*") if path.is_file()]
    used = sorted({name for path in files for name in INVENTORY.findall(path.read_text())})
    if not used:
        return ""
    return f"\nOf the inventory it reads {' and '.join(f'`{name}`' for name in used)}.\n"


def _readme(entry_points: dict[str, Any]) -> str:
    parts: list[str] = []
    for name, spec in entry_points.items():
        said = _markdown(spec["short_description"])
        parts.append(f"## `tasks_from: {name}`\n\n{said}." if parts else f"# {said}")
        parts += [_markdown(paragraph) for paragraph in spec.get("description", [])]
        if spec["options"]:
            parts.append(_table(spec["options"]))
    return "\n\n".join(parts) + "\n"


def _table(options: dict[str, Any]) -> str:
    rows = ["| option | type | |", "|---|---|---|"]
    for name, option in options.items():
        required = " (required)" if option.get("required") else ""
        rows.append(
            f"| `{name}` | {option['type']}{required} | {_markdown(option['description'])} |"
        )
    return "\n".join(rows)


def _markdown(text: str) -> str:
    return CODE.sub(r"`\1`", text).replace("|", r"\|")
