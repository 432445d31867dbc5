"""A job of several streams: analysed, run as a query with late events, and counted again."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from millrace_jobs.declared import job as declared_job
from millrace_jobs.declared import loader
from millrace_jobs.declared.loader import InvalidJob
from millrace_jobs.declared.transformation import no_events
from millrace_jobs.inputs.checkpoint import Batch, Checkpoint
from millrace_jobs.lookup import Lookup
from millrace_jobs.recount import run as recount
from millrace_jobs.recount.declared_rows import DeclaredRows
from millrace_jobs.sinks import archive
from millrace_jobs.transforms import parse
from pyspark.sql import DataFrame, SparkSession

from millrace.ledger.advertisements import CLICKS, IMPRESSIONS, Truth, advertisements
from millrace.plan import load_plan
from tests.jobs import running
from tests.jobs.running import Events, Query, late_counts, output_of, records
from tests.jobs.samples import at, millis, settings_of, stream

JOB = "attribution"
STREAMS = [stream("impressions"), stream("clicks")]
SETTINGS = settings_of(JOB, watermark_seconds=600)
NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
Rows = dict[tuple[datetime, str], tuple[int, int, int, int]]


def iso(seconds: float) -> str:
    return (NOON + timedelta(seconds=seconds)).isoformat(timespec="milliseconds")


def shown(ad: str, seconds: float, campaign: str = "spring") -> dict[str, Any]:
    return {"impression_id": ad, "campaign": campaign, "event_time": iso(seconds)}


def clicked(ad: str, seconds: float, campaign: str = "spring") -> dict[str, Any]:
    return shown(ad, seconds, campaign) | {"click_id": f"{ad} at {seconds}"}


def job_of(spark: SparkSession, **changes: Any) -> declared_job.Declared:
    return running.job_of(spark, JOB, STREAMS, SETTINGS, **changes)


def in_batch(spark: SparkSession, impressions: Events, clicks: Events) -> Rows:
    found = (records(spark, impressions, "impressions"), records(spark, clicks, "clicks"))
    return figures(job_of(spark).transform(found))


def figures(frame: DataFrame) -> Rows:
    rows = frame.collect()
    for row in rows:
        assert row.unmatched == row.clicks - row.matched
        assert row.click_rate == (row.clicks / row.impressions if row.impressions else None)
    return {
        (row.window_start, row.campaign): (
            row.impressions,
            row.clicks,
            row.matched,
            row.milliseconds_to_click,
        )
        for row in rows
    }


def plain(impressions: Events, clicks: Events) -> Rows:
    """The same, counted without Spark."""
    found: dict[tuple[datetime, str], list[int]] = {}

    def row(event: dict[str, Any]) -> list[int]:
        moment = datetime.fromisoformat(event["event_time"]).replace(tzinfo=None)
        key = (moment.replace(second=0, microsecond=0), event["campaign"])
        return found.setdefault(key, [0, 0, 0, 0])

    for event in impressions:
        row(event)[0] += 1
    for click in clicks:
        row(click)[1] += 1
        for event in impressions:
            same = all(event[name] == click[name] for name in ("campaign", "impression_id"))
            took = datetime.fromisoformat(click["event_time"]) - datetime.fromisoformat(
                event["event_time"]
            )
            if same and timedelta(0) <= took <= timedelta(hours=1):
                row(click)[2] += 1
                row(click)[3] += round(took.total_seconds() * 1000)
    return {key: (a, b, c, d) for key, (a, b, c, d) in found.items()}


def test_a_click_matches_within_the_hour_and_is_counted_when_it_came(spark: SparkSession) -> None:
    impressions = [shown("a", 0), shown("b", 1), shown("c", 2), shown("d", 3, "autumn")]
    clicks = [
        clicked("a", 3600),  # just in time
        clicked("b", 3601.001),
        clicked("c", 1),  # before it was shown
        clicked("d", 4),  # of another campaign
        clicked("e", 5),  # never shown
        clicked("d", 63.5, "autumn"),
    ]
    assert in_batch(spark, impressions, clicks) == {
        (at("2026-01-01 12:00:00"), "spring"): (3, 3, 0, 0),
        (at("2026-01-01 12:00:00"), "autumn"): (1, 0, 0, 0),
        (at("2026-01-01 12:01:00"), "autumn"): (0, 1, 1, 60_500),
        (at("2026-01-01 13:00:00"), "spring"): (0, 2, 1, 3_600_000),
    }


@settings(max_examples=4)
@given(st.integers(0, 2**32), st.floats(1, 20), st.floats(60, 120))
def test_generated_traffic_gives_what_plain_counting_and_its_truth_say(
    spark: SparkSession, seed: int, rate: float, seconds: float
) -> None:
    truth = Truth()
    sent: dict[str, Events] = {IMPRESSIONS: [], CLICKS: []}
    for record in advertisements(seed, rate, seconds):
        truth.count(record)
        _, value = record.message("run", round(NOON.timestamp() * 1000))
        sent[record.stream].append(json.loads(value))
    found = in_batch(spark, *sent.values())
    assert found == plain(*sent.values())
    for campaign, expected in truth.campaigns.items():
        rows = [row for (_, name), row in found.items() if name == campaign]
        sums = tuple(map(sum, zip(*rows, strict=True))) if rows else (0, 0, 0, 0)
        figures = (expected.impressions, expected.clicks, expected.matched)
        assert sums == (*figures, expected.milliseconds_to_click)


def test_what_is_described_is_all_that_a_checkpoint_depends_on(spark: SparkSession) -> None:
    output = job_of(spark).output
    assert output.key == {"campaign": "string"}
    assert output.values["click_rate"] == "double"
    aggregate, join, readings = output.state
    assert aggregate.startswith("Aggregate [window")
    assert join.startswith("Join Inner")
    assert readings == "4 readings of streams"


def test_its_rows_get_the_facts_of_their_campaign(spark: SparkSession) -> None:
    tables = load_plan("local").tables
    lookups = [Lookup.of(name, tables[name].model_dump()) for name in SETTINGS.tables]
    output = job_of(spark, lookups=lookups).output
    facts = {"name", "advertiser", "cost_per_click", "campaigns_version"}
    assert output.values.keys() - job_of(spark).output.values.keys() == facts
    assert output.state == job_of(spark).output.state


CLICKED = "campaign, event_time FROM clicks"
COUNTED = "SELECT window(i.event_time, '1 minute') AS window, i.campaign, count(*) AS n FROM"
GROUPED = "GROUP BY 1, 2"
TIMES = "c.event_time BETWEEN i.event_time AND i.event_time + INTERVAL 1 HOUR"
PAIRS = "impressions i JOIN clicks c ON i.impression_id = c.impression_id"
UNTIL = "SELECT *, event_time + INTERVAL 1 HOUR AS until FROM impressions"
LATER = PAIRS.replace("impressions i", f"({UNTIL}) i")
APART = "unix_millis(c.event_time) - unix_millis(i.event_time)"
REFUSED = {
    "a join of type LEFT OUTER": f"{PAIRS.replace('JOIN', 'LEFT JOIN')} AND {TIMES}",
    "doesn't bound the times": PAIRS,
    "from below and from above": f"{PAIRS} AND c.event_time >= i.event_time",
    "keep events for ever": f"{PAIRS} AND abs({APART}) < 9",
    "no equation of columns": f"impressions i JOIN clicks c ON {TIMES}",
    "equates times": f"{PAIRS} AND c.event_time = i.event_time",
    "with until, which is computed": f"{LATER} AND c.event_time BETWEEN i.event_time AND until",
}
BOUNDS = {
    "impressions i": None,
    f"{PAIRS} AND {TIMES}": 3600,
    f"impressions i JOIN clicks c USING (impression_id) WHERE {TIMES}": 3600,
    f"{PAIRS} AND c.event_time > i.event_time AND {TIMES.replace('1 HOUR', '2 HOURS')}": 7200,
    f"{PAIRS} AND c.event_time BETWEEN i.event_time - INTERVAL 30 MINUTES AND i.event_time": 1800,
}


@pytest.mark.parametrize("reason", REFUSED)
def test_a_join_that_could_not_go_on_is_refused(spark: SparkSession, reason: str) -> None:
    with pytest.raises(InvalidJob, match=reason):
        output_of(spark, f"{COUNTED} {REFUSED[reason]} {GROUPED}", STREAMS, SETTINGS)


def test_how_far_apart_partners_may_be_is_read_off_the_plan(spark: SparkSession) -> None:
    for join, seconds in BOUNDS.items():
        output = output_of(spark, f"{COUNTED} {join} {GROUPED}", STREAMS, SETTINGS)
        assert (output.join_seconds, output.key) == (seconds, {"campaign": "string"}), join


def test_a_setting_that_says_something_else_than_the_query_is_refused(spark: SparkSession) -> None:
    query = f"{COUNTED} {PAIRS} AND {TIMES} {GROUPED}"
    old = {"window_seconds": 60, "join_seconds": 3600}
    given = settings_of(JOB, watermark_seconds=600, **old)
    assert output_of(spark, query, STREAMS, given).join_seconds == 3600
    for name in old:
        given = settings_of(JOB, watermark_seconds=600, **old | {name: 7})
        with pytest.raises(InvalidJob, match=f"its setting {name} is 7, and its query says"):
            output_of(spark, query, STREAMS, given)


def test_a_query_of_one_stream_calls_it_by_its_name(spark: SparkSession) -> None:
    clicks = no_events(job_of(spark).context)[1]
    text = "SELECT campaign, count(*) AS clicks FROM clicks GROUP BY campaign"
    assert loader.query("test", text, ["clicks"])(clicks, SETTINGS.given).columns == [
        "campaign",
        "clicks",
    ]


@pytest.fixture
def written() -> Rows:
    return {}


@pytest.fixture
def query(
    spark: SparkSession, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, written: Rows
) -> Iterator[Query]:
    query = Query(
        spark, tmp_path, monkeypatch, job_of(spark), lambda frame: written.update(figures(frame))
    )
    yield query
    query.query.stop()


BATCHES: list[tuple[Events, Events]] = [
    ([shown("a", 0), shown("b", 30), shown("z", 40)], [clicked("a", 10)]),
    ([shown("c", 4000)], [clicked("b", 3500), clicked("z", 3690)]),  # in time, and too late
    ([shown("d", 9030)], [clicked("c", 9030)]),
    ([shown("e", 9100)], [clicked("d", 9050)]),  # the watermark is 8430 from here on
    # Both late for the join, and in time for their minute, which ends at 8460.
    ([shown("f", 8410), shown("g", 9200)], [clicked("e", 9110), clicked("f", 8420)]),
    ([shown("h", 9300)], [clicked("a", 3000), clicked("g", 9250)]),  # an hour later than late
]
LATE = {"impressions": 1, "clicks": 2}


@pytest.mark.extended
def test_a_stream_gives_what_a_batch_gives_but_for_late_events(
    spark: SparkSession, query: Query, written: Rows, monkeypatch: pytest.MonkeyPatch
) -> None:
    for impressions, clicks in BATCHES:
        query.send(impressions, clicks)
    everything = [[e for batch in BATCHES for e in batch[side]] for side in (0, 1)]
    truth = plain(*everything)
    differing = {key for key in truth if written.get(key) != truth[key]}
    # The pair that came late is not matched; the click that came an hour later isn't even counted.
    assert differing == {
        (at("2026-01-01 14:20:00"), "spring"),
        (at("2026-01-01 12:50:00"), "spring"),
    }
    assert written[at("2026-01-01 14:20:00"), "spring"][1:3] == (1, 0)

    assert query.dropping == [4, 5]
    counted, starts = late_counts(monkeypatch, job_of(spark), query, BATCHES)
    assert sum(counted.values()) == sum(LATE.values())
    assert {start for start, _ in differing} <= starts
    assert {batch for batch, _ in counted} == {query.batches[n].batchId for n in query.dropping}


def test_a_recount_reads_each_stream_s_archive_an_hour_further(
    spark: SparkSession, tmp_path: Path
) -> None:
    impressions = [shown("a", -3000), shown("b", 10)]
    clicks = [clicked("a", 20), clicked("b", 70)]
    for one, events in zip(STREAMS, (impressions, clicks), strict=True):
        found = records(spark, events, one.topic).transform(parse.classify, one)
        archived = parse.valid(found, one)
        archive.append(archived, one.event_time, str(tmp_path / one.name), "a", 0, 1, 1, 48)
    expected = plain(impressions, clicks)
    job = job_of(spark)
    day, bucket = at("2026-01-01 00:00:00"), 0
    stored = [
        {"window_start": start, "campaign": campaign, "impressions": i, "clicks": c, "matched": m}
        | {"milliseconds_to_click": ms, "unmatched": c - m, "click_rate": c / i if i else None}
        for (start, campaign), (i, c, m, ms) in expected.items()
    ]

    def select(statement: str, values: Any) -> list[Any]:
        if "late_windows" in statement or tuple(values[:2]) != (day.date(), bucket):
            return []
        return [SimpleNamespace(_asdict=lambda row=row: row) for row in stored]

    job.context.tables = SimpleNamespace(select=select, scan=select, select_one=lambda *_: None)  # type: ignore[assignment]
    job.context.config = SimpleNamespace(archive_of=lambda one: str(tmp_path / one.name))  # type: ignore[assignment]
    found = recount.recount(DeclaredRows(job), at("2026-01-01 12:00:00"), at("2026-01-01 12:01:00"))
    assert (found.checked, found.lost, found.extra, found.wrong) == (1, 0, 0, 0), found.examples


def test_a_checkpoint_tells_the_offsets_of_all_topics(spark: SparkSession, tmp_path: Path) -> None:
    (tmp_path / "offsets").mkdir()
    first = {"ad-impressions": {"0": 5, "1": 7}}, {"ad-clicks": {"0": 1}}
    second = {"ad-impressions": {"0": 9, "1": 7}}, {"ad-clicks": {"0": 1, "1": 4}}
    for number, (impressions, clicks) in enumerate((first, second)):
        metadata = {"batchWatermarkMs": millis("2026-01-01 12:00:00") + number}
        sources = (impressions, impressions, clicks, "-" if not number else clicks)
        lines = ["v1", json.dumps(metadata)]
        lines += [one if one == "-" else json.dumps(one) for one in sources]
        (tmp_path / "offsets" / str(number)).write_text("\n".join(lines))
    checkpoint = Checkpoint(spark, str(tmp_path))
    assert checkpoint.batch(0).end == first[0] | first[1]
    assert checkpoint.reached()["ad-clicks"] == {"0": -2, "1": -2}  # nothing is committed
    (tmp_path / "commits").mkdir()
    (tmp_path / "commits" / "0").write_text("")
    assert checkpoint.reached() == {
        "ad-impressions": {"0": 5, "1": 7},
        "ad-clicks": {"0": 1, "1": -2},
    }
    batch = checkpoint.batch(1)
    assert batch.start == {"ad-impressions": {"0": 5, "1": 7}, "ad-clicks": {"0": 1, "1": -2}}
    assert batch.end == second[0] | second[1]
    assert batch.of("ad-clicks") == Batch({"ad-clicks": {"0": 1, "1": -2}}, second[1])
