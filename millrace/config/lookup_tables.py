"""Models of ``configs/tables/``: lookup tables, facts that operators change while jobs run."""

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Literal, Self

from pydantic import Field, model_validator

from millrace.common.errors import Problems
from millrace.common.paths import CONFIGS
from millrace.config.load import read_yaml, validate
from millrace.config.model import Model, Name, Setting

INTEGERS = {"integer": 2**31, "long": 2**63}


class Column(Model):
    """A column of a lookup table. Numbers have a range, with its why and source."""

    type: Literal["text", "integer", "long", "double"]
    required: bool = True
    minimum: int | float | None = None
    maximum: int | float | None = None
    why: str | None = Field(default=None, min_length=10)
    source: str | None = Field(default=None, min_length=3)

    @model_validator(mode="after")
    def _has_the_range_of_its_type(self) -> Self:
        bounds = [self.minimum, self.maximum]
        if any((bound is None) == (self.type != "text") for bound in bounds):
            raise ValueError("numbers, and they alone, need minimum and maximum")
        if self.minimum is None or self.maximum is None:
            return self
        if not (self.why and self.source):
            raise ValueError("a range needs why and source")
        if self.minimum > self.maximum:
            raise ValueError(f"minimum {self.minimum} is above maximum {self.maximum}")
        limit = INTEGERS.get(self.type, math.inf)
        if not -limit <= self.minimum <= self.maximum < limit:
            raise ValueError(f"the range is wider than type {self.type}")
        return self


class Table(Model):
    """``configs/tables/<name>.yaml``; a row is named by the columns of its key."""

    summary: str
    key: list[Name] = Field(min_length=1)
    keep_days: Setting
    table_bytes: Setting
    columns: dict[Name, Column]

    @model_validator(mode="after")
    def _has_a_key_and_facts(self) -> Self:
        if len(set(self.key)) != len(self.key):
            raise ValueError("key: a column stands twice in it")
        for name in self.key:
            column = self.columns.get(name)
            if column is None or column.type == "double" or not column.required:
                raise ValueError(f"key: {name} must be a required column, and no double")
        if self.columns.keys() == set(self.key):
            raise ValueError("columns: none is a fact; all are the key")
        return self


def load_tables(folders: Iterable[Path] = (), configs: Path = CONFIGS) -> dict[str, Table]:
    """Loads all lookup tables by the names of their files: ours, and those of job folders.

    Raises OperatorError with the problems of all files.
    """
    found: dict[str, Table] = {}
    problems = Problems()
    for folder in (configs, *folders):
        for path in sorted((folder / "tables").glob("*.yaml")):
            if path.stem in found:
                problems.add(
                    [f"there is a table {path.stem} already; rename yours"], file=str(path)
                )
                continue
            with problems.caught():
                found[path.stem] = validate(Table, read_yaml(path), path)
    problems.refuse()
    return found
