"""Environments that differ from those of configs/ in one value."""

from typing import Any

from millrace.config import Environment, load_environment


def changed(path: str, value: Any, name: str = "dev") -> Environment:
    """An environment with another value at a path, such as ``aws/disks/cassandra``."""
    content = load_environment(name).model_dump(mode="json")
    place = content
    *folders, key = path.split("/")
    for folder in folders:
        place = place[folder]
    place[key] = value
    return Environment.model_validate(content)
