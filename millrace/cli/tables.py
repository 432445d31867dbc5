"""``millrace table``: what jobs look up, changed while they run."""

from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table as View

from millrace import completion
from millrace.common.console import Console
from millrace.common.errors import OperatorError
from millrace.common.paths import stack_name
from millrace.plan import Plan, load_plan
from millrace.plan.tables import TablePlan
from millrace.table_versions import Version, change, key_of, row_of, with_row, without_key

if TYPE_CHECKING:
    from millrace.cluster.tables import LookupVersions

app = typer.Typer(no_args_is_help=True, help="Facts that jobs look up, changed while they run.")
console = Console()

TableName = Annotated[
    str,
    typer.Argument(
        metavar="TABLE",
        help="`millrace table list` has them.",
        autocompletion=completion.tables,
    ),
]
ROW = "campaign=spring name=Spring …: a whole row."


@app.command("list")
def list_command() -> None:
    """Show the lookup tables, their columns and newest versions."""
    plan = load_plan(stack_name())
    with _versions(plan) as versions:
        newest = {name: versions.newest(name) for name in plan.tables}
    console.print(list_view(plan, newest))


@app.command("show")
def show_command(
    name: TableName,
    version: Annotated[
        int | None, typer.Option(help="An older one, while it is kept; else the newest.")
    ] = None,
) -> None:
    """Show the rows of a table."""
    plan = load_plan(stack_name())
    table = named(plan, name)
    with _versions(plan) as versions:
        console.print(show_view(name, table, _asked(versions, name, version)))


@app.command("put")
def put_command(
    name: TableName,
    row: Annotated[list[str], typer.Argument(metavar="COLUMN=VALUE ...", help=ROW)],
) -> None:
    """Put a row, in place of the one with its key: jobs see it from their next batch on."""
    plan = load_plan(stack_name())
    table = named(plan, name)
    wanted = row_of(name, table, row)
    with _versions(plan) as versions:
        changed = change(versions, name, table, with_row(table, wanted))
    console.print(show_view(name, table, Version(changed.number, [wanted])))


@app.command("remove")
def remove_command(
    name: TableName,
    key: Annotated[list[str], typer.Argument(metavar="COLUMN=VALUE ...", help="Its whole key.")],
) -> None:
    """Remove a row; versions before still have it."""
    plan = load_plan(stack_name())
    table = named(plan, name)
    wanted = key_of(name, table, key)
    with _versions(plan) as versions:
        if table.key_of(wanted) not in map(table.key_of, versions.newest(name).rows):
            raise OperatorError(
                f"table {name}: no row has {' '.join(key)}", f"`millrace table show {name}`"
            )
        changed = change(versions, name, table, without_key(table, wanted))
    console.print(f"{name}, version {changed.number}: {' '.join(key)} is gone")


def named(plan: Plan, name: str) -> TablePlan:
    """OperatorError for a table that nobody has declared."""
    if name not in plan.tables:
        known = ", ".join(plan.tables) or "none"
        raise OperatorError(f"no table {name}; configs/tables has {known}", "docs/tables.md")
    return plan.tables[name]


def list_view(plan: Plan, newest: dict[str, Version]) -> View:
    view = View(title="lookup tables", title_justify="left")
    for column in ("table", "summary", "key", "columns"):
        view.add_column(column)
    for column in ("version", "rows"):
        view.add_column(column, justify="right")
    for name, table in plan.tables.items():
        facts = ", ".join(column for column in table.columns if column not in table.key)
        found = newest[name]
        key = ", ".join(table.key)
        view.add_row(name, table.summary, key, facts, str(found.number), str(len(found.rows)))
    return view


def show_view(name: str, table: TablePlan, version: Version) -> View:
    since = f", since {version.since:%Y-%m-%d %H:%M:%S} UTC" if version.since else ""
    view = View(title=f"{name}, version {version.number}{since}", title_justify="left")
    for column, rule in table.columns.items():
        view.add_column(column, justify="left" if rule.type == "text" else "right")
    for row in version.rows:
        values = (row.get(column) for column in table.columns)
        view.add_row(*("" if value is None else str(value) for value in values))
    return view


def _asked(versions: "LookupVersions", name: str, number: int | None) -> Version:
    newest = versions.newest(name)
    if number is None or number == newest.number:
        return newest
    if found := versions.at(name, number):
        return found
    raise OperatorError(
        f"table {name} has no version {number}, or none any more; the newest is {newest.number}",
        f"`millrace table show {name}` shows the newest",
    )


def _versions(plan: Plan) -> AbstractContextManager["LookupVersions"]:
    from millrace.cluster.tables import lookup_versions  # Cassandra's client takes its time

    return lookup_versions(plan)
