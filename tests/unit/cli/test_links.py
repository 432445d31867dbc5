"""Links of the documents lead somewhere: to a file that is there, and to a heading that it has."""

import re
import subprocess
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from millrace.common.paths import REPO

FENCE = re.compile(r"^(```|~~~).*?^\1", re.MULTILINE | re.DOTALL)
COMMENT = re.compile(r"<!--.*?-->", re.DOTALL)
LINK = re.compile(r"\]\(([^()\s]+)\)")
HEADING = re.compile(r"^#{1,6} +(.+?) *#*$", re.MULTILINE)
ELSEWHERE = ("http://", "https://", "mailto:")


def documents() -> list[Path]:
    listed = subprocess.run(
        ["git", "ls-files", "--cached", "--others", "--exclude-standard", "*.md"],
        cwd=REPO,
        capture_output=True,
        text=True,
        check=True,
    )
    return [path for line in listed.stdout.splitlines() if (path := REPO / line).exists()]


def prose(text: str) -> str:
    """Without code and comments."""
    return COMMENT.sub("", FENCE.sub("", text))


def anchors(text: str) -> set[str]:
    """The headings as GitHub names them; one that comes again has a number."""
    seen: Counter[str] = Counter()
    found = set()
    for heading in HEADING.findall(prose(text)):
        plain = re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", heading)
        name = re.sub(r"[^\w\- ]", "", plain.lower()).replace(" ", "-")
        found.add(f"{name}-{seen[name]}" if seen[name] else name)
        seen[name] += 1
    return found


def dead_links(path: Path) -> Iterator[str]:
    for link in LINK.findall(prose(path.read_text())):
        if link.startswith(ELSEWHERE):
            continue
        name, _, anchor = link.partition("#")
        target = path.parent / name if name else path
        if not target.exists() or (
            anchor and target.suffix == ".md" and anchor not in anchors(target.read_text())
        ):
            yield link


@pytest.mark.parametrize("path", documents(), ids=lambda path: str(path.relative_to(REPO)))
def test_links_lead_somewhere(path: Path) -> None:
    assert list(dead_links(path)) == []


def test_a_dead_link_is_found(tmp_path: Path) -> None:
    (tmp_path / "there.md").write_text("# A plan, a *word*\n## Twice\n## Twice\n")
    page = tmp_path / "page.md"
    page.write_text(
        "# Here\n[file](gone.md) [heading](there.md#gone) [own](#gone)\n"
        "[a](there.md#a-plan-a-word) [b](there.md#twice-1) [c](#here) [d](https://example.org/x)\n"
        "```sh\n# [in code](gone-too.md)\n```\n<!-- [a comment](gone-as-well.md) -->\n"
    )
    assert list(dead_links(page)) == ["gone.md", "there.md#gone", "#gone"]
