#!/usr/bin/env python3
"""Prints crowd.py as one file that any Python 3.11 runs, with what it imports:

    python insight-api/bench/pack.py > crowd.pyz
    python3 crowd.pyz http://127.0.0.1:8080

Hosts have no package of their own for it, and an edge host is where each client has an address.
"""

import importlib
import sys
import zipfile
from io import BytesIO
from pathlib import Path

CROWD = Path(__file__).with_name("crowd.py")
PACKAGES = ("anyio", "certifi", "h11", "httpcore", "httpx", "idna", "rich", "typing_extensions")
# What a first request would import, and have the reader wait for.
MAIN = """\
import sys
import anyio._backends._asyncio, httpcore._backends.anyio, crowd

sys.exit(crowd.main())
"""


def packed() -> bytes:
    content = BytesIO()
    with zipfile.ZipFile(content, "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("__main__.py", MAIN)
        archive.write(CROWD, CROWD.name)
        for name in PACKAGES:
            add(archive, Path(importlib.import_module(name).__file__ or ""))
    return content.getvalue()


def add(archive: zipfile.ZipFile, module: Path) -> None:
    """A module, or all of a package: code and data."""
    if module.name != "__init__.py":
        archive.write(module, module.name)
        return
    for path in sorted(module.parent.rglob("*")):
        if path.is_file() and path.suffix != ".pyc":
            archive.write(path, path.relative_to(module.parent.parent))


if __name__ == "__main__":
    sys.stdout.buffer.write(packed())
