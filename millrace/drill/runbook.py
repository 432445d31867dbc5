"""A runbook: Markdown that people read and drills run. Pure, apart from reading the folder."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import Field, ValidationError

from millrace.common.errors import OperatorError
from millrace.common.parsing import parse_yaml
from millrace.common.paths import REPO
from millrace.config import Model
from millrace.ledger import IngestPath
from millrace.plan import Plan

RUNBOOKS = REPO / "runbooks"
INDEX = "README.md"
# Operations are followed by hand: nothing is injected, so there is nothing to drill.
OPERATION = re.compile(r"---\ntitle: (?P<title>[^\n]+)\noperation: (?P<summary>[^\n]+)\n---\n")


class Plane(StrEnum):
    """What a client can do with the service, or a component for its own clients."""

    PRODUCE = "produce"
    PROCESS = "process"
    READ = "read"
    KAFKA_CONTROL = "kafka_control"
    ZOOKEEPER = "zookeeper"
    HDFS = "hdfs"
    YARN = "yarn"
    REDIS = "redis"
    CASSANDRA = "cassandra"


SECTIONS = (
    "Steady state",
    "Symptoms",
    "Inject",
    "Expect",
    "Diagnose",
    "Recover",
    "Verify",
    "Roll back",
)
# Where the cluster heals by itself there is nothing to recover; diagnosing may be reading only.
TAGS = {"inject": True, "diagnose": False, "recover": False, "verify": True, "rollback": True}

Seconds = Annotated[float, Field(ge=0, strict=False)]


class FrontMatter(Model):
    """What a runbook says of itself. ``hold`` and ``goal`` are seconds.

    ``faults`` are rows of the fault matrix; a control run has none, and no alert leads to it.
    ``silent`` is why the alert doesn't fire in the drill, where it shouldn't; ``also`` are others
    that the same fault wakes somebody by, rightly. ``through`` is how the load comes.
    """

    title: str
    alert: Annotated[str, Field(pattern=r"^[A-Z][A-Za-z0-9]+$")] | None = None
    silent: str | None = Field(default=None, min_length=10)
    also: list[str] = Field(default_factory=list)
    component: str
    faults: list[Annotated[int, Field(ge=1)]]
    blast_radius: str
    environments: list[str] = Field(min_length=1)
    hold: Seconds
    goal: dict[Annotated[Plane, Field(strict=False)], Seconds] = Field(default_factory=dict)
    random: bool = False
    through: IngestPath = "kafka"

    def may_run_in(self, plan: Plan) -> bool:
        """An environment is of the kind of the one that it extends."""
        return not {plan.environment, plan.extends}.isdisjoint(self.environments)


@dataclass(frozen=True)
class Block:
    """Shell that a drill runs; ``line`` is where its fence opens in the file."""

    tag: str
    script: str
    line: int


@dataclass(frozen=True)
class Runbook:
    path: Path
    about: FrontMatter
    blocks: list[Block]

    @property
    def name(self) -> str:
        return self.path.stem

    def tagged(self, tag: str) -> list[Block]:
        return [block for block in self.blocks if block.tag == tag]


def load_runbook(name: str, folder: Path = RUNBOOKS) -> Runbook:
    """The runbook of that name. Raises OperatorError when there is none or it is malformed."""
    path = folder / f"{name}.md"
    if not path.exists():
        known = ", ".join(sorted(p.stem for p in folder.glob("*.md") if p.name != INDEX))
        raise OperatorError(f"there is no runbook '{name}'", f"the runbooks are: {known or 'none'}")
    return parse_runbook(path.read_text(), path)


def load_runbooks(folder: Path = RUNBOOKS) -> list[Runbook]:
    """Loads all runbooks, in the order of the faults that they cover."""
    operations = load_operations(folder)
    names = [
        path.stem
        for path in folder.glob("*.md")
        if path.name != INDEX and path.stem not in operations
    ]
    found = (load_runbook(name, folder) for name in names)
    return sorted(found, key=lambda runbook: (runbook.about.faults, runbook.name))


def load_operations(folder: Path = RUNBOOKS) -> dict[str, tuple[str, str]]:
    """Name → title and summary of the pages about operations, in the order of their names."""
    pages = {path.stem: OPERATION.match(path.read_text()) for path in sorted(folder.glob("*.md"))}
    return {name: (found["title"], found["summary"]) for name, found in pages.items() if found}


def parse_runbook(text: str, path: Path) -> Runbook:
    """The runbook in a file's text; refused with every line that is wrong."""
    about, first = _front_matter(text, path)
    lines = list(enumerate(text.splitlines()[first:], start=first + 1))
    headings, blocks = _scan(lines, path)
    problems = [*_section_problems(headings), *_block_problems(blocks)]
    if problems:
        raise OperatorError("\n".join(f"{path}:{line}: {what}" for line, what in problems))
    return Runbook(path, about, blocks)


def _front_matter(text: str, path: Path) -> tuple[FrontMatter, int]:
    """The model, and the number of lines that the front matter takes."""
    match = re.match(r"---\n(.*?\n)---\n", text, re.DOTALL)
    if match is None:
        raise OperatorError(f"{path}:1: no front matter between two lines of ---")
    source = match[1]
    try:
        content = parse_yaml(source)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        line = mark.line + 2 if mark else 1
        problem = getattr(error, "problem", error)
        raise OperatorError(f"{path}:{line}: not valid YAML: {problem}") from None
    try:
        about = FrontMatter.model_validate(content)
    except ValidationError as error:
        raise OperatorError("\n".join(_bad_keys(error, source, path))) from None
    return about, match[0].count("\n")


def _bad_keys(error: ValidationError, source: str, path: Path) -> Iterator[str]:
    keys: list[Any] = [line.split(":")[0] for line in source.splitlines()]
    for problem in error.errors():
        key = problem["loc"][0] if problem["loc"] else ""
        # A key that is missing has no line: the front matter's first one stands for it.
        line = keys.index(key) + 2 if key in keys else 1
        yield f"{path}:{line}: {'.'.join(map(str, problem['loc']))}: {problem['msg']}"


def _scan(lines: list[tuple[int, str]], path: Path) -> tuple[list[tuple[int, str]], list[Block]]:
    """Headings of the second level, and tagged blocks; what a fence encloses is no heading."""
    headings: list[tuple[int, str]] = []
    blocks: list[Block] = []
    fence: tuple[int, str] | None = None
    body: list[str] = []
    for number, line in lines:
        if fence and line.rstrip() == "```":
            if fence[1].startswith("sh "):
                blocks.append(Block(fence[1][3:].strip(), "\n".join(body) + "\n", fence[0]))
            fence = None
        elif fence:
            body.append(line)
        elif line.startswith("```"):
            fence, body = (number, line[3:].strip()), []
        elif line.startswith("## "):
            headings.append((number, line[3:].strip()))
    if fence:
        raise OperatorError(f"{path}:{fence[0]}: this block is never closed")
    return headings, blocks


def _section_problems(headings: list[tuple[int, str]]) -> Iterator[tuple[int, str]]:
    wanted = [f"## {section}" for section in SECTIONS]
    for (line, found), section in zip(headings, SECTIONS, strict=False):
        if found != section:
            yield line, f"'## {found}' where '## {section}' is expected"
            return
    if len(headings) != len(SECTIONS):
        last = headings[-1][0] if headings else 1
        yield last, f"the sections are not exactly: {', '.join(wanted)}"


def _block_problems(blocks: list[Block]) -> Iterator[tuple[int, str]]:
    for block in blocks:
        if block.tag not in TAGS:
            yield block.line, f"unknown tag '{block.tag}'; the tags are {', '.join(TAGS)}"
    tags = {block.tag for block in blocks}
    for tag, required in TAGS.items():
        if required and tag not in tags:
            yield 1, f"no block is tagged 'sh {tag}'"
