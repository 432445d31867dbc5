"""What a query means is read off its plan: what can be exact is taken, all else told with why."""

from datetime import datetime
from typing import Any

import pytest
from millrace_jobs.declared import loader
from millrace_jobs.declared.loader import InvalidJob, Place
from millrace_jobs.output import Output
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F
from pyspark.sql.types import StringType

from tests.jobs.running import output_of
from tests.jobs.samples import STREAM, settings_of

SETTINGS = settings_of("test", like="status_by_minute", approximate_columns=["about"])


def read(spark: SparkSession, rows: loader.Rows | str) -> Output:
    return output_of(spark, rows, [STREAM], SETTINGS)


def counted(window: str = "window(event_time, '1 minute')", source: str = "events") -> str:
    return f"SELECT {window} AS window, count(*) AS n FROM {source} GROUP BY 1"


def by(key: str, source: str = "events") -> str:
    return (
        f"SELECT window(event_time, '1 minute') AS window, {key} AS k, count(*) AS n FROM {source}"
        " GROUP BY 1, 2"
    )


def of(value: str) -> str:
    return f"SELECT window(event_time, '1 minute') AS window, {value} AS v FROM events GROUP BY 1"


def around(source: str) -> str:
    return f"SELECT * FROM ({by('url')}) {source}"


WINDOWS = {
    counted(): "1m",
    counted("window(event_time, '10 minutes', '1 minute')"): "10m by 1m",
    counted("window(event_time, '7 minutes', '3 minutes', '90 seconds')"): "7m by 3m from 90s",
    counted("window(event_time, '1 day', '1 day', '5 hours')"): "1d from 5h",
    counted("window(event_time, '1 hour', '1 hour', '-15 minutes')"): "1h from 45m",
    counted("window(at, '1 week')", "(SELECT event_time AS at FROM events)"): "7d",
    counted("w", "(SELECT window(event_time, '1 hour') AS w FROM events)"): "1h",
    f"WITH failed AS (SELECT * FROM events WHERE status >= 500) {counted(source='failed')}": "1m",
    f"WITH f AS ({by('url')}), twice AS (SELECT window, k, 2 * n AS n FROM f) TABLE twice": "1m",
}


@pytest.mark.parametrize("query", WINDOWS)
def test_a_window_is_as_long_as_the_query_says(spark: SparkSession, query: str) -> None:
    assert read(spark, query).window.name == WINDOWS[query]


NO_WINDOWS = {
    counted("window(timestamp, '1 day')"): "over timestamp, of which nobody knows",
    counted("window(event_time + INTERVAL 1 SECOND, '1 day')"): "is over CAST",
    counted("window(from_utc_timestamp(event_time, 'America/New_York'), '1 day')"): "5 hours",
    counted("struct(date_trunc('day', event_time) AS start)"): "aren't grouped by window",
    counted("session_window(event_time, '5 minutes')"): "make sessions of slots",
    counted("window(event_time, '1500 milliseconds')"): "isn't of whole seconds",
    counted(
        "w",
        "(SELECT window(event_time, '1 minute') AS w FROM events UNION ALL"
        " SELECT window(event_time, '5 minutes') FROM events)",
    ): "differ between the branches",
    counted(
        "window(at, '1 day')",
        "(SELECT event_time AS at FROM events UNION ALL SELECT timestamp FROM events)",
    ): "over timestamp",
}


@pytest.mark.parametrize("query", NO_WINDOWS)
def test_a_window_that_nobody_knows_to_be_over_is_refused(spark: SparkSession, query: str) -> None:
    with pytest.raises(InvalidJob, match=NO_WINDOWS[query]):
        read(spark, query)


KEYS = [
    "url",
    "coalesce(campaign, '')",
    "CASE WHEN status >= 500 THEN 'bad' ELSE 'good' END",
    "status DIV 100",
    "floor(status / 100)",
    "status % 10",
    "to_date(event_time)",
    "date_trunc('HOUR', event_time)",
    "cast(status AS string)",
    "concat(method, ' ', url)",
]


@pytest.mark.parametrize("key", KEYS)
def test_a_key_that_is_never_null_is_taken(spark: SparkSession, key: str) -> None:
    assert [*read(spark, by(key)).key] == ["k"]


def test_a_filter_proves_that_a_key_is_there(spark: SparkSession) -> None:
    assert read(spark, by("campaign", "events WHERE campaign IS NOT NULL")).key


NULLS = [
    "campaign",
    "lower(referrer)",
    "parse_url(url, 'HOST')",
    "CASE WHEN status >= 500 THEN 'bad' END",
    "status DIV 0",
    "status % bytes",
    "date_trunc(url, event_time)",
    "try_cast(url AS int)",
]


@pytest.mark.parametrize("key", NULLS)
def test_a_key_that_may_be_null_is_refused(spark: SparkSession, key: str) -> None:
    with pytest.raises(InvalidJob, match="may be null, and a key may not"):
        read(spark, by(key))


def test_a_union_s_key_may_be_null_by_any_branch(spark: SparkSession) -> None:
    with pytest.raises(InvalidJob, match="k may be null"):
        read(
            spark,
            "SELECT window(event_time, '1 minute') AS window, k, count(*) AS n FROM"
            " (SELECT event_time, url AS k FROM events UNION ALL"
            " SELECT event_time, campaign FROM events) GROUP BY 1, 2",
        )


ABOVE = {
    f"{by('url')} HAVING count_if(status >= 500) / count(*) > 0.5": "filters rows by what is count",
    around("WHERE n > 3"): "filters rows by what is counted",
    around("LIMIT 3"): "let readers take the first",
    f"SELECT DISTINCT * FROM ({by('url')})": "is there once for each window",
    f"SELECT *, rank() OVER (PARTITION BY window ORDER BY n) AS r FROM ({by('url')})": "rank",
    f"SELECT window, explode(array(1, 2)) AS k, n FROM ({by('url')})": "explode events before",
    by("url").replace("GROUP BY 1, 2", "GROUP BY 1, ROLLUP(url)"): "ROLLUP, CUBE and GROUPING SETS",
}


@pytest.mark.parametrize("query", ABOVE)
def test_rows_that_would_have_to_be_taken_back_are_refused(spark: SparkSession, query: str) -> None:
    with pytest.raises(InvalidJob, match=ABOVE[query]):
        read(spark, query)


def test_rows_may_be_filtered_by_their_key_and_computed_with(spark: SparkSession) -> None:
    output = read(
        spark, f"SELECT window, upper(k) AS page, k, n + 1 AS m FROM ({around('WHERE k > 5')})"
    )
    assert (output.key, [*output.values]) == ({"k": "string"}, ["page", "m"])


UNREPEATABLE = {
    of("max(current_timestamp())"): r"current_timestamp\(\) gives something else",
    of("count_if(event_time > localtimestamp())"): r"localtimestamp\(\) gives",
    of("count_if(event_time > timestamp'now')"): "each time that it is read",
    of("first(url)"): r"first\(\) takes what comes first",
    of("any_value(url)"): r"any_value\(\) takes",
    of("mode(url)"): r"mode\(\) takes",
    of("max_by(url, event_time)"): "events that are equal in that",
    of("max_by(url, bytes)"): "events that are equal in that",
    of("array_join(collect_list(url), ',')"): "sort it",
    of("percentile_approx(bytes, 0.9)"): "under approximate_columns",
}


@pytest.mark.parametrize("query", UNREPEATABLE)
def test_what_is_not_the_same_when_it_is_done_again_is_refused(
    spark: SparkSession, query: str
) -> None:
    with pytest.raises(InvalidJob, match=UNREPEATABLE[query]):
        read(spark, query)


REPEATABLE = [
    of("count_if(url LIKE '%know(%')"),
    of("max_by(url, struct(event_time, event_id))"),
    of("max_by(url, struct(event_time, url))"),
    of("min_by(url, struct(partition, offset))"),
    of("size(collect_set(url))"),
    of("array_join(array_sort(collect_set(url)), ',')"),
    of("percentile(bytes, 0.9)"),
    of("percentile_approx(bytes, 0.9)").replace("AS v", "AS about"),
    of("approx_count_distinct(url)"),
]


@pytest.mark.parametrize("query", REPEATABLE)
def test_what_is_always_the_same_is_taken(spark: SparkSession, query: str) -> None:
    assert read(spark, query).key == {}


def minute(events: DataFrame, *keys: Any) -> DataFrame:
    return events.groupBy(F.window("event_time", "1 minute"), *keys).agg(F.count("*").alias("n"))


def test_a_function_that_asks_the_clock_is_refused(spark: SparkSession) -> None:
    with pytest.raises(InvalidJob, match=r"datetime\.now"):
        read(spark, lambda events, _: minute(events.where(F.col("event_time") < datetime.now())))


def by_minute(events: DataFrame) -> DataFrame:
    return events.groupBy(F.window("event_time", "1 minute"), "url").agg(F.count("*").alias("n"))


@F.udf(StringType())
def shorter(url: str) -> str:
    return url[:5]


IN_PYTHON = {
    "a key": lambda events, _: by_minute(
        events.withColumn("url", F.coalesce(shorter("url"), F.lit("")))
    ),
    "a filter": lambda events, _: by_minute(events.where(shorter("url") == "/a")),
    "around": lambda events, _: by_minute(events).withColumn("short", shorter("url")),
}


@pytest.mark.parametrize("where", IN_PYTHON)
def test_a_function_in_python_is_refused(spark: SparkSession, where: str) -> None:
    with pytest.raises(InvalidJob, match="executors run no function in Python"):
        read(spark, IN_PYTHON[where])


def test_state_that_would_stay_for_ever_is_refused(spark: SparkSession) -> None:
    with pytest.raises(InvalidJob, match="remembers every event for ever"):
        read(spark, lambda events, _: minute(events.dropDuplicates(["event_id"])))
    once = ["event_id", "event_time"]
    assert read(spark, lambda events, _: minute(events.dropDuplicates(once)))
    with pytest.raises(InvalidJob, match="said by the setting watermark_seconds"):
        read(spark, lambda events, _: minute(events.withWatermark("event_time", "1 minute")))


NAMES = {
    "limit": "are parameters of the API",
    "to": "are parameters of the API",
    "final": "are the framework's",
    "window_end": "are the framework's",
}


@pytest.mark.parametrize("name", NAMES)
def test_a_column_that_nobody_could_ask_for_is_refused(spark: SparkSession, name: str) -> None:
    with pytest.raises(InvalidJob, match=NAMES[name]):
        read(spark, by("url").replace("AS k", f"AS `{name}`"))


def test_a_key_is_no_finer_than_what_is_stored(spark: SparkSession) -> None:
    with pytest.raises(InvalidJob, match="Cassandra keeps milliseconds"):
        read(spark, by("event_time"))


@pytest.mark.parametrize(
    ("query", "place"),
    [
        (f"{by('url')}\n HAVING count(*) > 3", Place(2, 8)),
        ("-- a\n" + by("\n  lower(campaign)"), Place(3, 2)),
    ],
)
def test_a_refusal_has_its_place(spark: SparkSession, query: str, place: Place) -> None:
    with pytest.raises(InvalidJob) as refused:
        read(spark, query)
    assert refused.value.place == place
