"""A client that a generator makes of an interface's description."""

import importlib
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from types import ModuleType

from openapi_python_client import generate
from openapi_python_client.config import Config, ConfigFile, MetaType


@contextmanager
def generated_client(document: str, package: Path) -> Iterator[ModuleType]:
    """The package that is made of the description at an address, imported."""
    problems = generate(
        config=Config.from_sources(
            ConfigFile(post_hooks=[]),
            MetaType.NONE,
            document_source=document,
            file_encoding="utf-8",
            overwrite=True,
            output_path=package,
        )
    )
    assert [f"{one.header} {one.detail}" for one in problems] == []
    sys.path.insert(0, str(package.parent))
    try:
        yield importlib.import_module(package.name)
    finally:
        sys.path.remove(str(package.parent))
