"""What grows for ever: nothing that isn't meant to. And tables that are there learn a new age."""

import re
from types import ModuleType

import pytest

from millrace.cli.retention import SCHEMA, retention_table
from millrace.common.paths import REPO
from millrace.plan import load_plan
from tests.unit.role_modules import module_of_role

PLAN = load_plan("local")
DAYS = {"windows": 800, "pages": 90, "letters": 30}
GENERATED = re.compile(r"<!-- generated: .*?<!-- end -->", re.DOTALL)
# Said of data, and not of a default or of a certificate.
AGE = re.compile(
    r"\b(?:kept|keeps?|stays?|as long as)\b[^.|]{0,60}?\b(\d+) days|\b(\d+) days, as long as"
)
VALUES = {"keyspace": "millrace", "datacenter": "dc", "replication": 3}


@pytest.fixture(scope="module")
def module() -> ModuleType:
    return module_of_role("job_gateway", "cassandra_schema")


@pytest.fixture
def wanted(module: ModuleType) -> dict[str, str]:
    return module.statements(SCHEMA.read_text(), VALUES | DAYS)


def test_tables_that_get_rows_all_the_time_let_them_go(module, wanted):
    kept = {name.partition(".")[2]: module.kept_seconds(text) for name, text in wanted.items()}
    assert kept["traffic"] == DAYS["windows"]
    assert kept["pages"] == DAYS["pages"]
    letters = ("dead_letters", "dead_letter_batches", "book_entries", "late_uncounted")
    assert {kept[name] for name in letters} == {DAYS["letters"]}
    assert kept["job_progress"] == 0


def columns_of(module, text):
    return {name.strip('"') for name in module.columns_of(text)}


def test_what_is_missing_is_made_and_another_age_is_altered(module, wanted):
    as_it_is = {
        name: (module.kept_seconds(text), columns_of(module, text)) if "." in name else None
        for name, text in wanted.items()
    }
    assert list(module.changes(wanted, {})) == list(wanted.values())
    assert list(module.changes(wanted, as_it_is)) == []
    columns = columns_of(module, wanted["millrace.quarantine"])
    of_an_older_version = as_it_is | {
        "millrace.traffic": (0, as_it_is["millrace.traffic"][1]),
        "millrace.quarantine": (30, columns - {"batch", "retried"}),
    }
    assert list(module.changes(wanted, of_an_older_version)) == [
        "ALTER TABLE millrace.traffic WITH default_time_to_live = 800",
        'ALTER TABLE millrace.quarantine ADD "batch" bigint',
        "ALTER TABLE millrace.quarantine ADD retried timestamp",
    ]


def test_each_column_of_a_table_is_known(module, wanted):
    tables = [text for name, text in wanted.items() if "." in name]
    for text in tables:
        lines = text.partition("(\n")[2].partition("\n)")[0].splitlines()
        of_one_line = [line for line in lines if not line.strip().startswith("PRIMARY")]
        assert len(module.columns_of(text)) == len(of_one_line)
    assert columns_of(module, wanted["millrace.job_outputs"]) == {"job", "description"}


def test_every_table_and_topic_has_its_row():
    text = retention_table(PLAN)
    for table in re.findall(r"CREATE TABLE IF NOT EXISTS :keyspace\.(\w+)", SCHEMA.read_text()):
        assert f"| `{table}` |" in text
    for topic in PLAN.topics:
        assert f"| topic of {topic} |" in text
    assert "| figures | each edge host | 7d; 512MB |" in text


def test_what_is_kept_as_long_as_something_else_is():
    """Each of these names the other's setting as its source."""
    spark = PLAN.spark.settings
    archive = spark.archive.keep_days
    topics = PLAN.names.kafka.topics
    broker = PLAN.services["kafka_broker"].settings["broker.properties"]
    kept = {
        "topic of dead letters": PLAN.topics[topics.dead_letters].retention_days,
        "topic of results": PLAN.topics[topics.results].retention_days,
        "positions of groups": broker["offsets.retention.minutes"] / 1440,
        "logs on AWS": load_plan("dev").services["cloudwatch_agent"].settings["logs"]["keep_days"],
        "rows of jobs of one file": spark.job("sessions").keep_days,
        "versions of lookup tables": PLAN.tables["campaigns"].keep_seconds / 86_400,
    }
    assert kept == dict.fromkeys(kept, archive)
    api = PLAN.services["insight_api"].settings["config.json"]
    assert api["kept_days"] == spark.traffic.keep_days


def test_no_prose_repeats_an_age():
    """It would go on saying it when the setting has changed."""
    ages = {PLAN.spark.settings.archive.keep_days, PLAN.spark.settings.traffic.pages_keep_days}
    ages |= {PLAN.spark.settings.traffic.keep_days}
    pages = [*REPO.glob("docs/*.md"), *REPO.glob("runbooks/*.md"), REPO / "README.md"]
    settings = (REPO / "configs").rglob("*.yaml")
    repeated = [
        f"{path.relative_to(REPO)}: {found[0]}"
        for path in (*pages, *settings)
        for found in AGE.finditer(re.sub(GENERATED, "", path.read_text()))
        if int(found[1] or found[2]) in ages
    ]
    assert repeated == []


def test_every_topic_but_positions_forgets():
    """A position per source that was ever replayed is all that one keeps."""
    endless = {
        part
        for part, topic in PLAN.topics.items()
        if "retention.ms" not in topic.config and "retention.bytes" not in topic.config
    }
    assert endless == {PLAN.names.kafka.topics.replay_progress}


def test_every_row_ends_or_says_that_it_does_not():
    """And by which setting, where it is one of ours."""
    rows = [row.split(" | ") for row in retention_table(PLAN).splitlines()[2:]]
    endless = [what for what, _, kept, _ in rows if kept == "for ever" or "by hand" in kept]
    assert endless == []
    assert all("`" in by for _, _, _, by in rows if "configs/components" in by)


def test_the_gateways_memory_has_room_for_the_upkeep():
    """Its own, of before there was one, beside what systemd grants the other."""
    for name in ("local", "staging", "prod"):
        gateway = load_plan(name).services["job_gateway"]
        upkeep = gateway.settings["upkeep"]
        assert gateway.memory.total - upkeep["memory_mb"] >= 300
        assert upkeep["memory_mb"] - upkeep["heap_mb"] >= 500  # the JVM's own, and Python's
