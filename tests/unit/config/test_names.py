"""Names that programs agree on stand in configs/names.yaml, and in no program.

They are looked for in every string of the Python sources and in every line of the roles. Words that
are such a name and mean something else are listed with what they mean.
"""

import ast
import re
from collections.abc import Collection, Iterator
from pathlib import Path

import pytest

from millrace.common.paths import REPO
from millrace.config import load_names

FOLDERS = (
    "millrace",
    "millrace_shared",
    "infra",
    "job-gateway",
    "spark-jobs",
    "insight-api",
    "collector",
    "ansible",
)
ROLE_FILES = {".yml", ".j2", ".cql", ".sh"}

# What else a word stands for, by where: everywhere under a path that begins so.
OTHERWISE = {
    ("millrace/common/paths.py", "millrace"): "the toolkit's folder in the user's cache",
    ("millrace/common/version.py", "millrace"): "the toolkit's package",
    ("millrace/providers/__init__.py", "millrace"): "the account by which hosts are entered",
    ("millrace/cli/", "millrace"): "the toolkit's folder; that variable, in the roles' documents",
    ("millrace/inventory.py", "millrace"): "the variable that holds the plan in the inventory",
    ("millrace/audit/report.py", "events"): "how many, in a report",
    ("millrace/cli/why.py", "events"): "those that a number was made of, in JSON",
    ("millrace/status/verdict.py", "events"): "what happened, in JSON",
    ("millrace/status/collect.py", "events"): "of its operations, in the API's answer",
    ("millrace/replay/pipeline.py", "events"): "the stream of configs/streams that logs go to",
    ("collector/bench/", "events"): "the stream that is sent",
    ("infra/", "millrace"): "Pulumi's project and modules, the hosts' account, that variable",
    ("spark-jobs/", "events"): "a column, how many; and what a query calls what it reads",
    ("spark-jobs/millrace_jobs/sinks/results.py", "results"): "a thread",
    ("ansible/plugins/callback/", "results"): "what Ansible calls the outcomes of a loop",
}


def names() -> set[str]:
    """Every value in the file, whatever it is nested in; of consumer groups the whole name."""
    pending: list[object] = [load_names().model_dump(exclude={"kafka": {"group_prefix"}})]
    found = {load_names().consumer_group("traffic")}
    while pending:
        value = pending.pop()
        if isinstance(value, dict):
            pending.extend(value.values())
        else:
            found.add(str(value))
    return found


def texts(path: Path) -> Iterator[tuple[int, str]]:
    """Line number and text of what could be a name: strings of Python, lines of other files."""
    if path.suffix != ".py":
        yield from enumerate((re.sub(r"#.*|--.*", "", s) for s in path.read_text().splitlines()), 1)
        return
    tree = ast.parse(path.read_text())
    told = {id(node.value) for node in ast.walk(tree) if isinstance(node, ast.Expr)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in told:
            yield node.lineno, node.value


def written(text: str, name: str, *, is_string: bool) -> bool:
    """Is it there as a word of its own, as the keyspace of a table, or as a path's beginning?"""
    if re.search(rf"\b(FROM|INTO|EXISTS) {re.escape(name)}\.", text):
        return True
    if not is_string:
        return bool(re.search(rf"(?<![\w./:-]){re.escape(name)}(?![\w/:.-])", text))
    return text.startswith(name) if name[0] == "/" or ":" in name else text == name


def sources() -> Iterator[Path]:
    for folder in FOLDERS:
        for path in sorted((REPO / folder).rglob("*")):
            if path.suffix == ".py" or (path.suffix in ROLE_FILES and folder != "millrace"):
                yield path


def findings(
    files: Iterator[Path], otherwise: Collection[tuple[str, str]] = OTHERWISE.keys()
) -> Iterator[str]:
    forbidden = names()
    for path in files:
        place = path.relative_to(REPO).as_posix() if path.is_relative_to(REPO) else path.name
        for line, text in texts(path):
            for name in forbidden:
                if written(text, name, is_string=path.suffix == ".py") and not any(
                    place.startswith(where) and word == name for where, word in otherwise
                ):
                    yield f"{place}:{line}: {name!r} belongs to configs/names.yaml"


def test_no_program_writes_a_name() -> None:
    assert list(findings(sources())) == []


def test_every_exception_is_one() -> None:
    everywhere = list(findings(sources(), otherwise={}))
    for place, word in OTHERWISE:
        assert any(f.startswith(place) and repr(word) in f for f in everywhere), (place, word)


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("written.py", 'MASTER = "millrace"'),
        ("written.py", 'QUERY = f"SELECT page FROM millrace.{table}"'),
        ("written.py", 'path = f"/millrace/jobs/{job}"'),
        ("written.py", 'topics = ["dead-letter"]'),
        ("written.py", 'GROUP = "millrace-traffic"'),
        ("written.yml", "cmd: sentinel ckquorum millrace"),
        ("written.j2", "dc=millrace"),
        ("written.j2", "'stream': 'millrace:traffic'"),
        ("written.cql", "CREATE TABLE IF NOT EXISTS millrace.pages ("),
    ],
)
def test_a_name_in_a_program_is_found(name: str, text: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text(text)
    assert len(list(findings(iter([tmp_path / name])))) == 1
