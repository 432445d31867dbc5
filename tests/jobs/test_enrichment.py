"""Facts from lookup tables: which rows get which, and the same again when a batch runs again."""

import json
from dataclasses import dataclass, replace
from datetime import datetime
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from millrace_jobs.declared import job as declared_job
from millrace_jobs.declared.enrichment import Enrichment, EnrichmentGone, with_columns
from millrace_jobs.declared.loader import InvalidJob
from millrace_jobs.lookup import Lookup
from millrace_jobs.output import Output, Sessions
from millrace_jobs.query.write_version import write_version
from millrace_jobs.recount.comparison import compare
from millrace_jobs.recount.rows import with_facts
from millrace_jobs.sinks.batch_commit import BatchIdentity
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F

from millrace.plan import load_plan
from tests.jobs.samples import settings_of

CAMPAIGNS = Lookup.of("campaigns", load_plan("local").tables["campaigns"].model_dump())
REGIONS = Lookup("regions", {"region": "string"}, {"manager": "string"})
NOTHING = dict.fromkeys(CAMPAIGNS.facts)
COUNTED = Output(
    job="test",
    table="job_test",
    summary="A test.",
    window_seconds=60,
    slide_seconds=60,
    offset_seconds=0,
    join_seconds=None,
    key={"campaign": "string"},
    values={"clicks": "bigint"},
    approximate={},
    buckets=4,
    keep_seconds=86400,
    state=[],
)
OUTPUT = with_columns(COUNTED, [CAMPAIGNS])


class MemoryTables:
    """As Cassandra: the write with the highest timestamp wins, whenever it arrives."""

    def __init__(self) -> None:
        self.versions: dict[str, dict[int, str]] = {}
        self.pin: Any = None
        self.pin_timestamp = -1
        self.rows: dict[tuple[Any, ...], tuple[int, dict[str, Any]]] = {}
        self.calls: list[str] = []

    def put(self, name: str, **campaigns: float) -> None:
        """Another version: campaign → the cost of a click."""
        rows = [
            {"campaign": c, "name": c.title(), "advertiser": "Acme", "cost_per_click": cost}
            for c, cost in campaigns.items()
        ]
        kept = self.versions.setdefault(name, {})
        kept[len(kept) + 1] = json.dumps(rows)

    def select_one(self, query: str, parameters: Any) -> Any:
        self.calls.append(query.partition(" FROM ")[2].split()[0])
        if "lookup_pins" in query:
            return self.pin
        kept = self.versions.get(parameters[0], {})
        number = parameters[1] if len(parameters) > 1 else max(kept, default=0)
        return SimpleNamespace(version=number, rows=kept[number]) if number in kept else None

    def prepare(self, *_: Any) -> None:
        pass

    def upsert(
        self, table: str, columns: Any, rows: Any, timestamp: int, partition_columns: int = 1
    ) -> None:
        self.calls.append(table)
        for row in rows:
            values = dict(zip((name.strip('"') for name in columns), row, strict=True))
            if table == "lookup_pins":
                if timestamp >= self.pin_timestamp:
                    self.pin, self.pin_timestamp = SimpleNamespace(**values), timestamp
            else:
                name = (values["window_start"], values["campaign"])
                if timestamp >= self.rows.get(name, (-1,))[0]:
                    self.rows[name] = (timestamp, values)


@pytest.fixture
def tables() -> MemoryTables:
    return MemoryTables()


def facts(tables: MemoryTables, *lookups: Lookup) -> Enrichment:
    """Of a driver that has just started."""
    return Enrichment(tables, lookups or [CAMPAIGNS], "test")  # type: ignore[arg-type]


def seen(found: list[dict[str, Any]]) -> list[tuple[float | None, int]]:
    return [(row["cost_per_click"], row["campaigns_version"]) for row in found]


SPRING = {"campaign": "spring", "clicks": 7}


def test_a_row_gets_the_facts_of_its_key(tables: MemoryTables) -> None:
    tables.put("campaigns", spring=0.35, summer=1.0)
    unknown = {"campaign": "winter", "clicks": 1}
    assert facts(tables).add([SPRING, unknown], "query", 0, 1) == [
        SPRING
        | {"name": "Spring", "advertiser": "Acme", "cost_per_click": 0.35, "campaigns_version": 1},
        unknown | NOTHING | {"campaigns_version": 1},
    ]


def test_before_the_first_change_there_are_none(tables: MemoryTables) -> None:
    assert facts(tables).add([SPRING], "query", 0, 1) == [
        SPRING | NOTHING | {"campaigns_version": 0}
    ]


def test_the_next_batch_sees_a_change(tables: MemoryTables) -> None:
    mine = facts(tables)
    tables.put("campaigns", spring=0.35)
    assert seen(mine.add([SPRING], "query", 0, 1)) == [(0.35, 1)]
    tables.put("campaigns", spring=0.4)
    assert seen(mine.add([SPRING], "query", 1, 2)) == [(0.4, 2)]
    tables.put("campaigns")
    assert seen(mine.add([SPRING], "query", 2, 3)) == [(None, 3)]


def test_a_batch_that_runs_again_sees_what_it_saw(tables: MemoryTables) -> None:
    tables.put("campaigns", spring=0.35)
    first = facts(tables).add([SPRING], "query", 5, write_version(1, 5))
    tables.put("campaigns", spring=0.4)
    second = facts(tables).add([SPRING], "query", 5, write_version(2, 5))
    assert first == second
    assert seen(facts(tables).add([SPRING], "query", 6, write_version(2, 6))) == [(0.4, 2)]


def test_the_note_comes_before_anything_else_and_under_its_version(tables: MemoryTables) -> None:
    facts(tables).add([SPRING], "query", 5, write_version(3, 5))
    assert tables.calls == ["{keyspace}.lookup_versions", "{keyspace}.lookup_pins", "lookup_pins"]
    assert tables.pin_timestamp == write_version(3, 5)


def test_who_repeats_a_batch_notes_it_again(tables: MemoryTables) -> None:
    """Else a fenced driver's note of its next batch would hide this one's from a third driver."""
    facts(tables).add([SPRING], "query", 5, write_version(1, 5))
    facts(tables).add([SPRING], "query", 5, write_version(2, 5))
    facts(tables).add([SPRING], "query", 6, write_version(1, 6))
    tables.put("campaigns", spring=0.4)
    assert seen(facts(tables).add([SPRING], "query", 5, write_version(3, 5))) == [(None, 0)]


def test_a_batch_of_another_checkpoint_is_another_batch(tables: MemoryTables) -> None:
    facts(tables).add([SPRING], "query", 5, write_version(1, 5))
    tables.put("campaigns", spring=0.4)
    assert seen(facts(tables).add([SPRING], "other", 5, write_version(2, 5))) == [(0.4, 1)]


def test_a_table_that_a_batch_did_not_know_is_read_as_it_is(tables: MemoryTables) -> None:
    tables.put("campaigns", spring=0.35)
    facts(tables).add([SPRING], "query", 5, write_version(1, 5))
    tables.put("campaigns", spring=0.4)
    tables.versions["regions"] = {1: json.dumps([{"region": "eu", "manager": "Ada"}])}
    [row] = facts(tables, CAMPAIGNS, REGIONS).add(
        [SPRING | {"region": "eu"}], "query", 5, write_version(2, 5)
    )
    assert (row["cost_per_click"], row["manager"]) == (0.35, "Ada")


def test_who_looks_nothing_up_asks_nothing(tables: MemoryTables) -> None:
    none = Enrichment(tables, [], "test")  # type: ignore[arg-type]
    assert none.add([SPRING], "query", 0, 1) == [SPRING]
    none.rehearse()
    assert facts(tables).add([], "query", 0, 1) == []
    assert tables.calls == []


def test_a_rehearsal_writes_nothing(tables: MemoryTables) -> None:
    tables.put("campaigns", spring=0.35)
    facts(tables).rehearse()
    assert "lookup_pins" not in tables.calls


def test_a_version_that_is_gone_fails_the_batch(tables: MemoryTables) -> None:
    tables.put("campaigns", spring=0.35)
    facts(tables).add([SPRING], "query", 5, write_version(1, 5))
    tables.put("campaigns", spring=0.4)
    del tables.versions["campaigns"][1]
    with pytest.raises(EnrichmentGone, match="version 1 of table campaigns"):
        facts(tables).add([SPRING], "query", 5, write_version(2, 5))


@dataclass
class Driver:
    facts: Enrichment
    epoch: int
    batch: int


EVENTS = st.lists(st.sampled_from(["put", "begin", "commit", "takeover", "zombie"]), max_size=40)


@given(EVENTS)
def test_whatever_happens_a_batch_is_stored_with_the_facts_of_one_version(
    events: list[str],
) -> None:
    """A batch begins once or again, is committed or not; drivers take over, fenced ones go on."""
    tables = MemoryTables()
    driver, fenced = Driver(facts(tables), 1, 0), None
    known: dict[int, Any] = {}
    cost = 0
    for event in events:
        if event == "put":
            cost += 1
            tables.put("campaigns", spring=float(cost))
        elif event == "begin":
            found = driver.facts.add(
                [SPRING], "query", driver.batch, write_version(driver.epoch, driver.batch)
            )
            assert known.setdefault(driver.batch, found) == found
        elif event == "commit" and driver.batch in known:
            driver.batch += 1
        elif event == "takeover":
            fenced, driver = driver, Driver(facts(tables), driver.epoch + 1, driver.batch)
            # It goes on with the batch that is due before it does anything else.
            found = driver.facts.add(
                [SPRING], "query", driver.batch, write_version(driver.epoch, driver.batch)
            )
            assert known.setdefault(driver.batch, found) == found
        elif event == "zombie" and fenced:
            batch = fenced.batch + 1
            fenced.facts.add([SPRING], "query", batch, write_version(fenced.epoch, batch))


def test_columns_are_those_of_the_table() -> None:
    assert OUTPUT.values == {
        "clicks": "bigint",
        "name": "string",
        "advertiser": "string",
        "cost_per_click": "double",
        "campaigns_version": "bigint",
    }
    assert OUTPUT.state == COUNTED.state


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"key": {"url": "string"}}, "by campaign, which its rows don't have"),
        ({"key": {"campaign": "bigint"}}, "campaign as string, its rows as bigint"),
        ({"values": {"name": "string"}}, "have name already"),
        ({"values": {"campaigns_version": "bigint"}}, "have campaigns_version already"),
    ],
)
def test_what_can_not_be_looked_up_is_refused(changes: dict[str, Any], reason: str) -> None:
    with pytest.raises(InvalidJob, match=reason):
        with_columns(replace(COUNTED, **changes), [CAMPAIGNS])


def test_a_framework_column_is_no_fact() -> None:
    with pytest.raises(InvalidJob, match="have version already"):
        with_columns(COUNTED, [Lookup("t", {"campaign": "string"}, {"version": "int"})])


def test_a_session_has_the_facts_of_its_last_slot() -> None:
    merges = {"first": "start", "last": "end", "clicks": "sum"}
    slots = replace(COUNTED, sessions=Sessions(1800, "clicks", merges))
    assert with_columns(slots, [CAMPAIGNS]).sessions == Sessions(
        1800, "clicks", merges | dict.fromkeys(CAMPAIGNS.columns, "last")
    )
    with pytest.raises(InvalidJob, match="have open already"):
        with_columns(slots, [Lookup("t", {"campaign": "string"}, {"open": "int"})])


MINUTE = datetime(2026, 1, 1, 0, 5)


def recounted(
    tables: MemoryTables, stored: dict[str, Any], computed: dict[str, Any] = SPRING
) -> str:
    """What the audit says of one row: nothing where it is as it has to be."""
    row = computed | {"window_start": MINUTE}
    found = stored | {"window_start": MINUTE}
    findings = compare(OUTPUT, with_facts(OUTPUT, facts(tables), [row], [found]), [found])
    return "".join(findings.examples)


def test_an_audit_looks_up_the_version_that_a_row_names(tables: MemoryTables) -> None:
    tables.put("campaigns", spring=0.35)
    [stored] = facts(tables).add([SPRING], "query", 0, 1)
    tables.put("campaigns", spring=0.4)
    assert recounted(tables, stored) == ""
    assert "cost_per_click 0.35 ≠ 0.4" in recounted(tables, stored | {"cost_per_click": 0.4})
    assert "0.4 ≠ 0.35" in recounted(tables, stored | {"campaigns_version": 2})
    assert "clicks 8 ≠ 7" in recounted(tables, stored, SPRING | {"clicks": 8})


def test_an_audit_takes_a_rows_word_for_a_version_that_is_gone(tables: MemoryTables) -> None:
    tables.put("campaigns", spring=0.35)
    [stored] = facts(tables).add([SPRING], "query", 0, 1)
    tables.versions.clear()
    assert recounted(tables, stored) == ""


def test_a_row_of_before_has_no_facts(tables: MemoryTables) -> None:
    tables.put("campaigns", spring=0.35)
    stored = SPRING | dict.fromkeys(CAMPAIGNS.columns)
    assert recounted(tables, stored) == ""
    assert "name None ≠ Spring" in recounted(tables, stored | {"name": "Spring"})


def test_a_batch_is_stored_and_published_with_its_facts_again_and_again(
    spark: SparkSession, tables: MemoryTables
) -> None:
    published: list[list[dict[str, Any]]] = []

    def driver(epoch: int) -> declared_job.Declared:
        results: Any = SimpleNamespace(
            check=lambda *_: -1, publish=lambda *what: published.append(what[-1])
        )
        context: Any = SimpleNamespace(
            job="test",
            lookups=[CAMPAIGNS],
            settings=settings_of("sessions"),
            spark=SimpleNamespace(streams=SimpleNamespace(get=lambda _: None)),
            identify=lambda batch: BatchIdentity("query", batch, write_version(epoch, batch), {}),
            lease=SimpleNamespace(confirm=lambda: None),
            tables=tables,
        )
        one = declared_job.Declared(context, results=results)
        vars(one)["output"] = OUTPUT  # read off no plan
        return one

    def clicks(spark: SparkSession) -> DataFrame:
        events = spark.createDataFrame([("spring", MINUTE)] * 3, "campaign string, at timestamp")
        rows = events.groupBy(F.window("at", "1 minute").alias("w"), "campaign").count()
        return rows.select(
            F.col("w.start").alias("window_start"), "campaign", F.col("count").alias("clicks")
        )

    tables.put("campaigns", spring=0.35)
    driver(1).write(clicks(spark), 5)
    tables.put("campaigns", spring=0.4)
    driver(2).write(clicks(spark), 5)
    [(_, stored)] = tables.rows.values()
    assert (stored["clicks"], stored["cost_per_click"], stored["campaigns_version"]) == (3, 0.35, 1)
    first, again = ([row | {"version": 0} for row in batch] for batch in published)
    assert first == again
    driver(2).write(clicks(spark), 6)
    [(_, stored)] = tables.rows.values()
    assert (stored["cost_per_click"], stored["campaigns_version"]) == (0.4, 2)
