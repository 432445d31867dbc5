"""What changes this checkout, not a cluster: `millrace lock | docs`."""

from typing import Annotated

import typer


def lock() -> None:
    """Resolve versions.yaml and requirements/*.in anew and write the locks."""
    from millrace.setup.relock import relock

    relock()


def docs(
    check: Annotated[bool, typer.Option("--check", help="Only say whether it is current.")] = False,
) -> None:
    """Write the generated parts of the documents anew from configs/."""
    from millrace.cli.docs import write_docs

    write_docs(check)
