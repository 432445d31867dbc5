"""Every command that can be typed, as the shell names it."""

from collections.abc import Iterator
from typing import Any

import typer
from typer.core import TyperGroup

from millrace.cli import app
from millrace.cli.commands import Later


def every_command() -> dict[str, Any]:
    """``jobs disable`` → the command."""
    return dict(_below("", typer.main.get_group(app)))


def _below(path: str, group: TyperGroup) -> Iterator[tuple[str, Any]]:
    for name, command in group.commands.items():
        loaded = command.load() if isinstance(command, Later) else command
        if isinstance(loaded, TyperGroup):
            if loaded.invoke_without_command:
                yield f"{path}{name}", loaded
            yield from _below(f"{path}{name} ", loaded)
        else:
            yield f"{path}{name}", loaded


def options(command: Any) -> set[str]:
    return {option for parameter in command.params for option in parameter.opts}
