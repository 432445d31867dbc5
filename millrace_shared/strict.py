"""JSON as frozen dataclasses, each key and type checked: a wrong one is refused by its place.

Not pydantic, for two reasons: a driver reads its configuration while the one that has just taken
over needs every core, and pydantic takes a quarter of a second of one to import; and jobs and
gateway run in the Python that comes with Spark, where each package is carried to every worker.
"""

import json
from dataclasses import MISSING, fields, is_dataclass
from pathlib import Path
from types import NoneType, UnionType
from typing import Any, TypeVar, get_args, get_origin, get_type_hints

T = TypeVar("T")


class Misconfigured(Exception):
    """A file that a deployment rendered isn't what this version reads; names file and key."""


def load(kind: type[T], path: Path) -> T:
    """The dataclass in a JSON file. Raises Misconfigured, also when there is none."""
    try:
        return read(kind, json.loads(path.read_text()))
    except (OSError, ValueError, Misconfigured) as error:
        raise Misconfigured(f"{path}: {error}") from None


def read(kind: type[T], content: Any) -> T:
    """``content`` as a dataclass. Raises Misconfigured."""
    value: T = _read(kind, content, "")
    return value


def read_known(kind: type[T], content: dict[str, Any]) -> T:
    """As `read`, where ``content`` may have further keys, and lack those that have a default."""
    known: Any = kind
    names = {field.name for field in fields(known)}
    return read(kind, _defaults(known) | {name: content[name] for name in names & content.keys()})


def _defaults(kind: Any) -> dict[str, Any]:
    found = {field.name: field.default for field in fields(kind) if field.default is not MISSING}
    made = {
        field.name: field.default_factory()
        for field in fields(kind)
        if field.default_factory is not MISSING
    }
    return found | made


def _read(kind: Any, content: Any, place: str) -> Any:
    if is_dataclass(kind):
        return _record(kind, content, place)
    if kind is Any:
        return content
    if get_origin(kind) is list and isinstance(content, list):
        (item,) = get_args(kind)
        return [_read(item, value, f"{place}[{number}]") for number, value in enumerate(content)]
    if get_origin(kind) is tuple and isinstance(content, list):
        items = get_args(kind)
        if len(items) == len(content):
            return tuple(
                _read(item, value, place) for item, value in zip(items, content, strict=True)
            )
    if get_origin(kind) is dict and isinstance(content, dict):
        _, item = get_args(kind)
        return {key: _read(item, value, f"{place}.{key}") for key, value in content.items()}
    if isinstance(kind, UnionType):
        return _optional(kind, content, place)
    if kind is Path and isinstance(content, str):
        return Path(content)
    if kind is float and type(content) is int:
        return float(content)
    if type(content) is kind:  # isinstance would take true for a number
        return content
    expected = getattr(kind, "__name__", kind)
    raise Misconfigured(f"{place.lstrip('.')}: {content!r} is no {expected}")


def _optional(kind: UnionType, content: Any, place: str) -> Any:
    """``X | None``; no other choice is known."""
    [inner] = [one for one in get_args(kind) if one is not NoneType]
    return None if content is None else _read(inner, content, place)


def _record(kind: Any, content: Any, place: str) -> Any:
    if not isinstance(content, dict):
        raise Misconfigured(f"{place.lstrip('.') or 'all of it'}: {content!r} has no keys")
    names = {field.name for field in fields(kind)}
    if differ := names ^ content.keys():
        for key in sorted(differ):
            what = "is missing" if key in names else "is unknown"
            raise Misconfigured(f"{f'{place}.{key}'.lstrip('.')}: {what}")
    types = get_type_hints(kind)
    return kind(**{name: _read(types[name], content[name], f"{place}.{name}") for name in names})
