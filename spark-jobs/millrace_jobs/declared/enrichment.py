"""Adds to a job's rows what lookup tables say of them; the same when a batch runs again.

Operators change the tables meanwhile (`millrace table`); each change is a version.
Which versions a batch sees is noted before anything else of it is written, so whoever runs it again
finds the note: see docs/adr/0012-facts-are-added-when-rows-are-stored.md.
"""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

from millrace_jobs.declared.loader import InvalidJob
from millrace_jobs.declared.plan.session_slots import SAID
from millrace_jobs.lookup import Lookup
from millrace_jobs.output import OWN, Output, Sessions
from millrace_jobs.sinks.cassandra import Tables

PINS = "lookup_pins"
PIN_COLUMNS = ("job", "checkpoint", '"batch"', "versions")

Row = dict[str, Any]
Key = tuple[Any, ...]
Versions = dict[str, int]  # by lookup table; 0 is the empty one, before the first change


class EnrichmentGone(Exception):
    """A version that a row or a batch has seen is kept no longer."""


def with_columns(output: Output, lookups: Iterable[Lookup]) -> Output:
    """The output with what its rows get. Raises InvalidJob where they can't be looked up."""
    for lookup in lookups:
        columns = output.key | output.values
        where = f"job {output.job}: table {lookup.name}"
        for name, kind in lookup.key.items():
            if name not in columns:
                raise InvalidJob(f"{where} is looked up by {name}, which its rows don't have")
            if columns[name] != kind:
                raise InvalidJob(f"{where} has {name} as {kind}, its rows as {columns[name]}")
        reserved = {*columns, *OWN, *(SAID if output.sessions else ())}
        if taken := [name for name in lookup.columns if name in reserved]:
            raise InvalidJob(f"{where}: its rows have {', '.join(taken)} already; rename that")
        output = replace(
            output,
            values=output.values | lookup.columns,
            sessions=output.sessions and _with_facts(output.sessions, lookup),
        )
    return output


def _with_facts(sessions: Sessions, lookup: Lookup) -> Sessions:
    """A session has the facts of its last slot."""
    return replace(sessions, merges=sessions.merges | dict.fromkeys(lookup.columns, "last"))


class Enrichment:
    """Of one job. What was read is remembered until its next batch sees another version."""

    def __init__(self, tables: Tables, lookups: Sequence[Lookup], job: str) -> None:
        self._tables = tables
        self._lookups = lookups
        self._job = job
        self._read: dict[tuple[str, int], dict[Key, Row]] = {}

    def rehearse(self) -> None:
        """Read what `add` reads, and make its statement ready."""
        if self._lookups:
            self._newest()
            self._pinned("", -1)
            self._tables.prepare(PINS, PIN_COLUMNS)

    def add(self, rows: list[Row], checkpoint: str, batch: int, version: int) -> list[Row]:
        """The rows with their facts, of the versions that the batch saw when it first ran.

        Args:
            checkpoint: the query's id; a batch of another one is another batch.
            version: of this batch, by this driver: under it the note is written.
        """
        if not self._lookups or not rows:
            return rows
        versions = self._newest() | self._pinned(checkpoint, batch)
        self._read = {  # what can't be read must not be noted; other versions are of no use now
            (lookup.name, versions[lookup.name]): self._rows(lookup, versions[lookup.name])
            for lookup in self._lookups
        }
        pin = (self._job, checkpoint, batch, json.dumps(versions))
        self._tables.upsert(PINS, PIN_COLUMNS, [pin], version)
        return [self._with(row, versions) for row in rows]

    def of_now(self, row: Row) -> Row:
        """A row that no batch stores, with its facts of the newest versions."""
        return self._with(row, self._newest())

    def _with(self, row: Row, versions: Versions) -> Row:
        for lookup in self._lookups:
            row = row | self._look_up(lookup, row, versions[lookup.name])
        return row

    def as_stored(self, row: Row, stored: Mapping[str, Any]) -> Row:
        """A row that was counted again, with facts of the versions that the stored one names.

        Of a version that is kept no longer it takes the stored row's word.
        """
        for lookup in self._lookups:
            try:
                row = row | self._look_up(lookup, row, stored[lookup.version_column])
            except EnrichmentGone:
                row = row | {name: stored[name] for name in lookup.columns}
        return row

    def _look_up(self, lookup: Lookup, row: Row, number: int | None) -> Row:
        """None is the version of a row that was stored before the job looked anything up."""
        found = self._rows(lookup, number).get(tuple(row[name] for name in lookup.key), {})
        return {name: found.get(name) for name in lookup.facts} | {lookup.version_column: number}

    def _pinned(self, checkpoint: str, batch: int) -> Versions:
        """What the batch was noted to see, of each table that the job looked up then."""
        query = f'SELECT checkpoint, "batch", versions FROM {{keyspace}}.{PINS} WHERE job = ?'
        pin = self._tables.select_one(query, [self._job])
        if pin is None or (pin.checkpoint, pin.batch) != (checkpoint, batch):
            return {}
        versions: Versions = json.loads(pin.versions)
        return versions

    def _newest(self) -> Versions:
        """Reads rows and not just numbers: what a quorum has given once, each later one gives."""
        query = "SELECT version, rows FROM {keyspace}.lookup_versions WHERE lookup = ? LIMIT 1"
        newest: Versions = {}
        for lookup in self._lookups:
            found = self._tables.select_one(query, [lookup.name])
            number = newest[lookup.name] = found.version if found else 0
            if number and (lookup.name, number) not in self._read:
                self._read[lookup.name, number] = _by_key(lookup, found.rows)
        return newest

    def _rows(self, lookup: Lookup, number: int | None) -> dict[Key, Row]:
        if not number:
            return {}
        known = (lookup.name, number)
        if known not in self._read:
            query = "SELECT rows FROM {keyspace}.lookup_versions WHERE lookup = ? AND version = ?"
            found = self._tables.select_one(query, known)
            if found is None:
                raise EnrichmentGone(
                    f"job {self._job}: version {number} of table {lookup.name} is gone"
                )
            self._read[known] = _by_key(lookup, found.rows)
        return self._read[known]


def _by_key(lookup: Lookup, rows: str) -> dict[Key, Row]:
    return {tuple(row[name] for name in lookup.key): row for row in json.loads(rows)}
