"""``millrace lock``: resolve versions and requirements again and write what was found."""

import tempfile
from dataclasses import replace
from fnmatch import fnmatch
from pathlib import Path

from uv import find_uv_bin

from millrace.setup.locks import Jar, lock_path, parse_jar, sha256_of, write_lock
from millrace.setup.maven import fetch, resolve
from millrace.setup.processes import run
from millrace.setup.python_env import HINT, REQUIREMENTS
from millrace.setup.versions import Distribution, load_versions


def relock() -> list[Path]:
    """Write every lock and requirement file anew; returns what was written."""
    # Who is constrained by others' locks comes after them.
    inputs = sorted(REQUIREMENTS.glob("*.in"), key=lambda path: ("-c " in path.read_text(), path))
    written = [_lock_python(path) for path in inputs]
    for name, distribution in load_versions().distributions.items():
        if distribution.jars:
            written.append(lock_distribution(name, distribution))
    return written


def lock_distribution(name: str, distribution: Distribution) -> Path:
    """Resolve a distribution's jars, download them and record their checksums."""
    roots = [parse_jar(coordinates) for coordinates in distribution.jars]
    jars = resolve(roots) if distribution.transitive else roots
    jars = [jar for jar in jars if not excluded(jar, distribution)]
    jars += [parse_jar(rule.jar) for rule in distribution.unpack]
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        fetch(jars, folder)
        jars = [replace(jar, sha256=sha256_of(folder / jar.filename)) for jar in jars]
    write_lock(lock_path(name), jars)
    return lock_path(name)


def excluded(jar: Jar, distribution: Distribution) -> bool:
    return any(fnmatch(jar.coordinates, pattern) for pattern in distribution.exclude)


def _lock_python(source: Path) -> Path:
    """Pins with hashes and without the index's address: any mirror may serve the same bytes."""
    target = source.with_suffix(".txt")
    command = [find_uv_bin(), "pip", "compile", "--quiet", "--generate-hashes", "--upgrade"]
    command += ["--python-version", "3.11", "--no-emit-index-url", "--no-header"]
    # From inside the folder, so that "via" comments name the input, not this machine's path.
    run(
        [*command, source.name, "-o", target.name],
        what=f"locking {source.name}",
        hint=HINT,
        cwd=source.parent,
    )
    return target
