"""What `--help` says, and that what it and the documents show can be typed."""

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import typer
from typer.core import TyperGroup

from millrace.cli import app
from millrace.common.exits import Exit
from millrace.common.paths import REPO
from tests.unit.typed import every_command

COMMANDS = every_command()
SENTENCE = re.compile(r"[A-Z](?:(?!\. ).)+\.", re.DOTALL)
FENCE = re.compile(r"^```sh.*?\n(.*?)^```", re.MULTILINE | re.DOTALL)
# Those two do what they say as soon as they are parsed.
TYPED = re.compile(r"(?<![\w/.\"`-])millrace (?!--version|--install-completion)[^|;&)>\n#]*")
PAGES = [*REPO.glob("*.md"), *REPO.glob("docs/*.md"), *REPO.glob("runbooks/*.md")]


def commands_in(text: str) -> Iterator[list[str]]:
    """The words of each command; of one that goes over several lines only what is whole."""
    for found in TYPED.findall(text):
        try:
            _, *words = shlex.split(re.sub(r"\$\{?\w+[^\s\"]*", "1", found))
        except ValueError:
            continue
        yield words


def require_typable(words: list[str]) -> None:
    """Parses it as the shell's words are, and runs nothing."""
    context: Any = typer.main.get_group(app).make_context("millrace", [*words])
    while isinstance(context.command, TyperGroup) and (
        left := [*context._protected_args, *context.args]
    ):
        name, command, arguments = context.command.resolve_command(context, left)
        context = command.make_context(name, arguments, parent=context)


@pytest.mark.parametrize(("path", "command"), COMMANDS.items(), ids=COMMANDS)
def test_the_help_begins_with_one_sentence_and_its_examples_can_be_typed(
    path: str, command: Any
) -> None:
    first, *others = command.help.split("\n\n")
    assert SENTENCE.fullmatch(first)
    for paragraph in others:
        for words in commands_in(paragraph):
            require_typable(words)
            assert " ".join(words).startswith((path, "replay", "hosts", "on"))


@pytest.mark.parametrize(("path", "command"), COMMANDS.items(), ids=COMMANDS)
def test_each_option_says_what_it_is(path: str, command: Any) -> None:
    shown = [parameter for parameter in command.params if not getattr(parameter, "hidden", False)]
    assert [parameter.name for parameter in shown if not parameter.help] == []


EXIT = re.compile(r"\bexits? (?:with )?(\d+)", re.IGNORECASE)


def test_the_exit_codes_that_are_told_are_known() -> None:
    texts = [command.help for command in COMMANDS.values()]
    texts += [page.read_text() for page in REPO.glob("docs/*.md") if page.stem != "aws"]
    told = {int(code) for text in texts for code in EXIT.findall(text)}
    assert {Exit.UNHEALTHY, Exit.UNREACHABLE, Exit.NOT_PASSED} <= told <= {*Exit}


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(REPO)))
def test_what_the_documents_show_can_be_typed(page: Path) -> None:
    for block in FENCE.findall(page.read_text()):
        for words in commands_in(block):
            require_typable(words)


def test_what_can_t_be_typed_is_found() -> None:
    [good, bad] = commands_in(
        'millrace host kill "$HOST" | x\nfor x in $(millrace hosts --zon a); do'
    )
    require_typable(good)
    with pytest.raises(typer.TyperException, match="No such option"):
        require_typable(bad)
