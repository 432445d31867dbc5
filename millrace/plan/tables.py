"""Lookup tables under a profile, and those that a job names and nobody has declared."""

from collections.abc import Iterator, Mapping
from typing import Any

from pydantic import PositiveInt

from millrace.config import Component, Profile
from millrace.config.lookup_tables import Table
from millrace.plan.parts import Model
from millrace.plan.spark import MOST_DAYS

Value = int | float | str | None
Row = dict[str, Value]
DAY_SECONDS = 86400


class ColumnPlan(Model):
    """What toolkit and jobs need of a column."""

    type: str
    required: bool
    minimum: int | float | None
    maximum: int | float | None


class TablePlan(Model):
    """A lookup table under a profile. ``table_bytes`` bounds one version as it is kept."""

    summary: str
    key: list[str]
    keep_seconds: PositiveInt
    table_bytes: PositiveInt
    columns: dict[str, ColumnPlan]

    def key_of(self, row: Row) -> tuple[Any, ...]:
        return tuple(row[name] for name in self.key)


def plan_table(table: Table, profile: Profile) -> TablePlan:
    return TablePlan(
        summary=table.summary,
        key=table.key,
        keep_seconds=table.keep_days.at(profile) * DAY_SECONDS,
        table_bytes=table.table_bytes.at(profile),
        columns={
            name: ColumnPlan(**column.model_dump(exclude={"why", "source"}))
            for name, column in table.columns.items()
        },
    )


def problems(tables: Mapping[str, Table], spark: Component) -> Iterator[str]:
    """Tables that a job names and nobody has declared, or whose versions no store could keep."""
    for declared, table in tables.items():
        value = table.keep_days.value
        values = value.values() if isinstance(value, dict) else [value]
        longest = max((days for days in values if isinstance(days, int)), default=0)
        if longest > MOST_DAYS:
            yield (
                f"configs/tables/{declared}.yaml: keep_days: {longest:,}: Cassandra keeps a row for"
                f" 20 years at most, {MOST_DAYS:,} days"
            )
    for job, settings in spark.settings.items():
        names = settings["tables"].value if "tables" in settings else []
        if not isinstance(names, list):
            yield f"job {job}: tables: {names} is no list, such as [campaigns]"
            continue
        for name in names:
            if name not in tables:
                known = ", ".join(tables) or "none"
                yield f"job {job}: tables: no table {name}; configs/tables has {known}"
