"""A declared job's rows, as what can be counted again."""

from collections import Counter
from collections.abc import Collection, Iterator
from datetime import datetime, timedelta

from millrace_jobs.declared.enrichment import Enrichment
from millrace_jobs.output import Output
from millrace_jobs.quarantine.search import Skip
from millrace_jobs.query.job import Countable
from millrace_jobs.recount.comparison import Findings, by_name, compare, differing, named
from millrace_jobs.recount.counted import Difference, Record, floor
from millrace_jobs.recount.generations import Seen, Terms
from millrace_jobs.recount.rows import computed_rows, late_events, stored_rows, with_facts
from millrace_jobs.recount.slices import Slice, in_slices
from millrace_shared.generations import STREAM
from millrace_shared.progress import tell

HOUR = timedelta(hours=1)


class DeclaredRows:
    """`Counted` for a job that is one file."""

    def __init__(self, job: Countable) -> None:
        self._job = job
        self.context = job.context
        self.rows = job.output.table
        self.grid = timedelta(milliseconds=1)  # rows are told by their windows' starts
        self.step = max(timedelta(seconds=job.output.slide_seconds), HOUR)

    @property
    def output(self) -> Output:
        return self._job.output

    def closed_before(self, watermark: datetime) -> datetime:
        """Behind a join a window is written for as long as partners may come."""
        output, offset = self.output, timedelta(seconds=self.output.offset_seconds)
        slide = timedelta(seconds=output.slide_seconds)
        last = watermark - timedelta(seconds=output.window_seconds + (output.join_seconds or 0))
        return floor(last - offset, slide) + offset + slide

    def count(
        self,
        start: datetime,
        end: datetime,
        terms: Terms,
        skips: Collection[Skip],
        generation: int,
        version: int,
    ) -> int:
        """Rows get the facts that the stream's have; those that it hasn't get those of now."""
        output, facts = self.output, self._facts()

        def store(part: Slice) -> int:
            there = by_name(output, stored_rows(self._job, part))
            computed = by_name(output, computed_rows(self._job, part, skips, terms))
            rows = [
                facts.as_stored(row, there[name]) if name in there else facts.of_now(row)
                for name, row in computed.items()
            ]
            self.context.tables.upsert(
                output.table,
                [f'"{name}"' for name in output.columns],
                [output.row(row, version, generation) for row in rows],
                version,
                partition_columns=2,
            )
            return len(rows)

        return sum(in_slices(Slice(start, end), output, store))

    def audit(self, part: Seen, terms: Terms, skips: Collection[Skip]) -> Findings:
        """What is late is missing from the stream's rows alone."""
        output, facts = self.output, self._facts()
        late: Counter[datetime] = Counter()
        if part.generation == STREAM:
            late = late_events(self._job, part.start, part.end)

        def compare_slice(one: Slice) -> Findings:
            stored = stored_rows(self._job, one, part.generation)
            computed = computed_rows(self._job, one, skips, terms)
            computed = with_facts(output, facts, computed, stored)
            found = compare(output, computed, stored, late.keys())
            tell(f"windows to {one.end} UTC of {part.end}: {found.checked:,} rows more")
            return found

        findings = Findings(late=late.total(), lacking=[window.isoformat() for window in late])
        for found in in_slices(Slice(part.start, part.end), output, compare_slice):
            findings.add(found)
        return findings

    def differences(
        self, start: datetime, end: datetime, before: int, after: int
    ) -> Iterator[Difference]:
        output = self.output
        measures = [
            name
            for name, kind in output.values.items()
            if kind in ("int", "bigint") and name not in output.approximate
        ]

        def compare_slice(part: Slice) -> list[Difference]:
            one, other = (
                by_name(output, stored_rows(self._job, part, number)) for number in (before, after)
            )
            return [
                Difference(named(name), one.get(name), other.get(name), columns, measures)
                for name in sorted(one.keys() | other.keys(), key=str)
                if (columns := _columns(output, one.get(name), other.get(name)))
            ]

        for found in in_slices(Slice(start, end), output, compare_slice):
            yield from found

    def records(
        self, start: datetime, end: datetime, before: int, after: int, version: int
    ) -> Iterator[Record]:
        for one in self.differences(start, end, before, after):
            if one.after is not None:
                yield self.output.record(one.after, version) | {"generation": after}
            elif one.before is not None:
                yield self.output.record_gone(one.before, version) | {"generation": after}

    def _facts(self) -> Enrichment:
        context = self.context
        return Enrichment(context.tables, context.lookups, context.job)


def _columns(output: Output, before: Record | None, after: Record | None) -> str:
    if before is None or after is None:
        return "all"
    return differing(output, before, after)
