"""Jars through the ordinary Maven client, so that a site's mirror and proxy settings hold."""

import re
import tempfile
from collections.abc import Iterable
from pathlib import Path
from xml.sax.saxutils import escape

from millrace.setup.locks import Jar
from millrace.setup.packages import ensure_command
from millrace.setup.processes import run

PLUGIN = "org.apache.maven.plugins:maven-dependency-plugin:3.8.1"
HINT = "Maven reads mirrors and proxies from ~/.m2/settings.xml; try again when it can connect"

# `list` prints `group:artifact:jar[:classifier]:version:scope`, then notes of its own.
LISTED = re.compile(r"^\s+([^\s:]+):([^\s:]+):jar:(?:([^\s:]+):)?([^\s:]+):(?:compile|runtime)\b")


def fetch(jars: Iterable[Jar], folder: Path) -> None:
    """Download exactly these jars into a folder, each under its own file name."""
    dependencies = "".join(map(_alone, jars))
    goal = [f"{PLUGIN}:copy-dependencies", f"-DoutputDirectory={folder}"]
    _maven(dependencies, goal, "downloading jars")


def resolve(roots: Iterable[Jar]) -> list[Jar]:
    """The roots and everything they pull in at run time, without checksums yet."""
    with tempfile.TemporaryDirectory() as scratch:
        listing = Path(scratch) / "list.txt"
        goal = [f"{PLUGIN}:list", "-DincludeScope=runtime", f"-DoutputFile={listing}"]
        _maven("".join(_dependency(root) for root in roots), goal, "resolving dependencies")
        found = map(LISTED.match, listing.read_text().splitlines())
    return [Jar(m[1], m[2], m[4], m[3], "") for m in found if m]


def _maven(dependencies: str, goal: list[str], what: str) -> None:
    mvn = ensure_command("mvn", ["maven", "openjdk-17-jre-headless"])
    with tempfile.TemporaryDirectory() as scratch:
        project = Path(scratch)
        (project / "pom.xml").write_text(POM.format(dependencies=dependencies))
        run([mvn, "-q", "-B", *goal], what=what, hint=HINT, cwd=project)


def _alone(jar: Jar) -> str:
    """The lock is complete, so nothing may follow a jar by itself."""
    everything = "<exclusion><groupId>*</groupId><artifactId>*</artifactId></exclusion>"
    return _dependency(jar, f"<exclusions>{everything}</exclusions>")


def _dependency(jar: Jar, more: str = "") -> str:
    classifier = f"<classifier>{escape(jar.classifier)}</classifier>" if jar.classifier else ""
    return (
        f"<dependency><groupId>{escape(jar.group)}</groupId>"
        f"<artifactId>{escape(jar.artifact)}</artifactId>"
        f"<version>{escape(jar.version)}</version>{classifier}{more}</dependency>\n"
    )


POM = """<project xmlns="http://maven.apache.org/POM/4.0.0">
<modelVersion>4.0.0</modelVersion>
<groupId>millrace</groupId><artifactId>distribution</artifactId><version>1</version>
<packaging>pom</packaging>
<dependencies>
{dependencies}</dependencies>
</project>
"""
