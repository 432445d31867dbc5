"""``millrace table``: what jobs look up, changed while they run."""

from contextlib import AbstractContextManager
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Annotated

import typer

from millrace import completion
from millrace.common.consent import YesOption, agree
from millrace.common.console import Console
from millrace.common.errors import OperatorError
from millrace.common.paths import stack_name
from millrace.common.tables import Answer, Column, JsonOption, Row, Table, shown, tell
from millrace.plan import Plan, load_plan
from millrace.plan.tables import TablePlan
from millrace.table_versions import Version, change, key_of, row_of, with_row, without_key

if TYPE_CHECKING:
    from millrace.cluster.tables import LookupVersions

app = typer.Typer(
    no_args_is_help=True, help="Show and change facts that jobs look up, while they run."
)
console = Console()

TableName = Annotated[
    str,
    typer.Argument(
        metavar="TABLE",
        help="`millrace table list` has them.",
        autocompletion=completion.tables,
    ),
]
ROW = "A whole row."


@app.command("list")
def list_command(as_json: JsonOption = False) -> None:
    """Show the lookup tables, their columns and newest versions."""
    plan = load_plan(stack_name())
    with _versions(plan) as versions:
        newest = {name: versions.newest(name) for name in plan.tables}
    tell(Answer.of(tables=list_table(plan, newest)), as_json)


@app.command("show")
def show_command(
    name: TableName,
    version: Annotated[
        int | None, typer.Option(help="An older one, while it is kept; else the newest.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Show the rows of a table, of its newest version or an older one.

    millrace table show campaigns --version 3
    """
    plan = load_plan(stack_name())
    table = named(plan, name)
    with _versions(plan) as versions:
        found = _asked(versions, name, version)
    tell(rows_of(name, table, found), as_json)


@app.command("put")
def put_command(
    name: TableName,
    row: Annotated[list[str], typer.Argument(metavar="COLUMN=VALUE ...", help=ROW)],
    as_json: JsonOption = False,
) -> None:
    """Put a row, in place of the one with its key: jobs see it from their next batch on.

    millrace table put campaigns campaign=spring name=Spring advertiser=Acme cost_per_click=0.35
    """
    plan = load_plan(stack_name())
    table = named(plan, name)
    wanted = row_of(name, table, row)
    with _versions(plan) as versions:
        changed = change(versions, name, table, with_row(table, wanted))
    tell(rows_of(name, table, Version(changed.number, [wanted])), as_json)


@app.command("remove")
def remove_command(
    name: TableName,
    key: Annotated[list[str], typer.Argument(metavar="COLUMN=VALUE ...", help="Its whole key.")],
    yes: YesOption = False,
) -> None:
    """Remove a row; versions before still have it.

    millrace table remove campaigns campaign=spring
    """
    plan = load_plan(stack_name())
    table = named(plan, name)
    wanted = key_of(name, table, key)
    agree(f"Remove {' '.join(key)} from table {name} of {plan.environment}?", yes=yes)
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


def list_table(plan: Plan, newest: dict[str, Version]) -> Table:
    rows = [
        {
            "table": name,
            "summary": table.summary,
            "key": table.key,
            "columns": [column for column in table.columns if column not in table.key],
            "version": newest[name].number,
            "rows": len(newest[name].rows),
        }
        for name, table in plan.tables.items()
    ]
    columns = ("table", "summary", "key", "columns", "version", "rows")
    return Table("lookup tables", [*map(Column, columns)], rows)


def rows_of(name: str, table: TablePlan, version: Version) -> Answer:
    since = f", since {shown(version.since)}" if version.since else ""
    columns = [Column(column, column, partial(_fact, column)) for column in table.columns]
    rows = [{column: row.get(column) for column in table.columns} for row in version.rows]
    found = Answer.of(rows=Table(f"{name}, version {version.number}{since}", columns, rows))
    about = {"table": name, "version": version.number, "since": version.since}
    return replace(found, data={**about, **found.data})


def _fact(column: str, row: Row) -> str:
    """As it is stored: it may be typed again."""
    return "" if row[column] is None else str(row[column])


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
