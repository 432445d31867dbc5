"""A lookup table as its jobs see it: what rows are looked up by, and which columns they get.

Free of Spark and of libraries, because a driver imports it on its way to leading.
"""

from dataclasses import dataclass
from typing import Any

SQL_TYPES = {"text": "string", "integer": "int", "long": "bigint", "double": "double"}


@dataclass(frozen=True)
class Lookup:
    """``key`` and ``facts``: column → SQL type."""

    name: str
    key: dict[str, str]
    facts: dict[str, str]

    @classmethod
    def of(cls, name: str, content: dict[str, Any]) -> "Lookup":
        """The lookup table that the plan describes under ``tables.NAME``."""
        types = {column: SQL_TYPES[rule["type"]] for column, rule in content["columns"].items()}
        key = {column: types.pop(column) for column in content["key"]}
        return cls(name, key, types)

    @property
    def version_column(self) -> str:
        return f"{self.name}_version"

    @property
    def columns(self) -> dict[str, str]:
        """The columns that the table adds to a row, by their SQL types."""
        return {**self.facts, self.version_column: "bigint"}
