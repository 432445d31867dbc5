"""Modules that come with a role, as Python."""

import importlib.util
from types import ModuleType

from millrace.common.paths import ANSIBLE


def module_of_role(role: str, name: str) -> ModuleType:
    path = ANSIBLE / "roles" / role / "library" / f"{name}.py"
    spec = importlib.util.spec_from_file_location(name, path)
    assert spec
    assert spec.loader
    found = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(found)
    return found
