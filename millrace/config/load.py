"""Reads and checks a file of ``configs/``; a refusal names file and key."""

from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ValidationError

from millrace.common.errors import NOTHING_CHANGED, OperatorError
from millrace.common.parsing import parse_yaml
from millrace.common.paths import CONFIGS

ModelT = TypeVar("ModelT", bound=BaseModel)


def read_yaml(path: Path) -> dict[str, Any]:
    """The mapping in a YAML file; refused with file, line and reason when it isn't one."""
    try:
        content = parse_yaml(path.read_text())
    except FileNotFoundError:
        raise OperatorError(f"{shown(path)}: no such file") from None
    except yaml.YAMLError as error:
        raise OperatorError(f"{shown(path)}: not valid YAML: {error}") from None
    if not isinstance(content, dict):
        raise OperatorError(f"{shown(path)}: expected a mapping of keys at the top")
    return content


def validate(model: type[ModelT], content: dict[str, Any], path: Path) -> ModelT:
    """``content`` as ``model``, or an error that lists each bad key of the file."""
    try:
        return model.model_validate(content)
    except ValidationError as error:
        problems = [
            ": ".join(filter(None, (shown(path), ".".join(map(str, e["loc"])), e["msg"])))
            for e in error.errors()
        ]
        raise OperatorError("\n".join(problems), NOTHING_CHANGED) from None


def merge(base: dict[str, Any], over: dict[str, Any]) -> dict[str, Any]:
    """``over`` laid on ``base``: mappings merge key by key, everything else is replaced."""
    merged = dict(base)
    for key, value in over.items():
        both = isinstance(value, dict) and isinstance(merged.get(key), dict)
        merged[key] = merge(merged[key], value) if both else value
    return merged


def shown(path: Path) -> str:
    """The path as the operator knows it: from the repository's root."""
    try:
        return str(path.relative_to(CONFIGS.parent))
    except ValueError:
        return str(path)
