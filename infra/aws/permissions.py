"""What an operator's credentials must allow: permissions.yaml, read."""

from collections import defaultdict
from pathlib import Path
from typing import Any

import yaml

FILE = Path(__file__).with_suffix(".yaml")


def load_permissions() -> dict[str, dict[str, dict[str, list[str]]]]:
    """Returns ``resources`` and ``questions``: what needs it → service → actions."""
    content: dict[str, Any] = yaml.safe_load(FILE.read_text())
    shared = {name: content.pop(name) for name in ("tagged", "balanced")}
    for needs in content["resources"].values():
        for service, actions in shared.get(needs.pop("also", ""), {}).items():
            needs.setdefault(service, []).extend(actions)
    return content


def by_service() -> dict[str, list[str]]:
    """Returns all of them, each once: service → actions."""
    found: dict[str, set[str]] = defaultdict(set)
    for needed in load_permissions().values():
        for needs in needed.values():
            for service, actions in needs.items():
                found[service].update(actions)
    return {service: sorted(actions) for service, actions in sorted(found.items())}
