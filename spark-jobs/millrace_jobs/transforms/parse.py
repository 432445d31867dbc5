"""Kafka records → events, or the reason why not.

Total: `classify` says of each record whether it is an event, and `malformed` gives each of the
others the first rule that it breaks. Nothing that a job relies on is coerced or nulled on the way.

Two steps, because nearly all records are events. The first is cheap and only says yes or no; the
second reads the others again, with a parser that keeps the types, to explain.
"""

from collections.abc import Callable
from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from millrace_jobs.config import Limits

TEXTS = ("event_id", "visitor_id", "method", "url", "kind")
REQUIRED = {
    **dict.fromkeys(TEXTS, "string"),
    "event_time": "timestamp",
    "status": "int",
    "bytes": "bigint",
}
# May be absent or null, and are kept as text whatever their JSON type: nothing computes with them.
OPTIONAL = ("session_hint", "referrer", "user_agent", "campaign")
FIELDS = REQUIRED | dict.fromkeys(OPTIONAL, "string")

# Where a record stands in Kafka; ``timestamp`` is the brokers' clock.
COORDINATES = ("topic", "partition", "offset", "timestamp")

_STRICT = {
    "allowSingleQuotes": "false",
    "allowNonNumericNumbers": "false",
    "timestampFormat": "yyyy-MM-dd'T'HH:mm:ss[.SSS]XXX",
}


def classify(records: DataFrame, limits: Limits) -> DataFrame:
    """Each record with its fields and ``is_event``, without which the fields mean nothing."""
    texts = records.withColumn("text", _text(limits))
    return texts.transform(_with_fields, FIELDS).withColumn("is_event", _is_event(limits))


def valid(classified: DataFrame) -> DataFrame:
    """The events."""
    return classified.filter("is_event").select(*FIELDS, *COORDINATES)


def malformed(classified: DataFrame, limits: Limits) -> DataFrame:
    """The records that are no events, untouched, each with its reason."""
    records = classified.filter("not is_event").drop(*FIELDS, "is_object", "is_event")
    return (
        records.transform(_with_fields, dict.fromkeys(REQUIRED, "variant"))
        .withColumn("reason", _reason(limits))
        .select(*records.columns, "reason")
        .drop("text")
    )


def _text(limits: Limits) -> Column:
    """The value as a string; null if it is too large to be looked at, or isn't UTF-8.

    Said explicitly, because a cast from bytes to a string takes whatever it is given.
    """
    text = F.try_validate_utf8(F.col("value").cast("string"))
    return F.when(F.octet_length("value") <= limits.event_bytes, text)


def _with_fields(records: DataFrame, fields: dict[str, str]) -> DataFrame:
    """The fields of the JSON object that ``text`` is; all null if it isn't one.

    The text is parsed as the content of an array: a parser that expects one value stops after it
    and would accept whatever follows. The fields leave the array by ``inline``, because the
    optimiser never merges expressions across it; else it would parse again for each use of a field.
    """
    schema = ", ".join(f"{name} {kind}" for name, kind in fields.items())
    as_array = F.concat(F.lit("["), F.col("text"), F.lit("]"))
    parsed = records.withColumn(
        "parsed", F.from_json(as_array, f"array<struct<{schema}>>", _STRICT)
    )
    is_object = (F.size("parsed") == 1) & F.get("parsed", F.lit(0)).isNotNull()
    return parsed.select(
        *records.columns,
        F.coalesce(is_object, F.lit(False)).alias("is_object"),
        F.inline_outer(F.when(is_object, F.col("parsed"))),
    )


def _is_event(limits: Limits) -> Column:
    conditions = [
        *(F.col(name).isNotNull() for name in REQUIRED),
        *(_is_quoted(name) for name in (*TEXTS, "event_time")),
        *(condition for condition, _ in _ranges(limits, F.col)),
    ]
    return F.coalesce(reduce(Column.__and__, conditions), F.lit(False))


def _is_quoted(name: str) -> Column:
    """The field was written as a string.

    ``from_json`` turns anything into text where text is declared. Looking for the quote costs a
    tenth of a parser that keeps types; the pattern is for those who put blanks around the colon.
    """
    text = F.col("text")
    return text.contains(f'"{name}":"') | text.rlike(rf'"{name}"\s*:\s*"')


def _reason(limits: Limits) -> Column:
    """The first rule that a record breaks, most fundamental first."""
    rules = [
        (F.col("value").isNull(), "no value"),
        (F.octet_length("value") > limits.event_bytes, f"larger than {limits.event_bytes} bytes"),
        (F.col("text").isNull(), "not UTF-8"),
        (~F.col("is_object") & ~_is_other_json(), "not JSON"),
        (~F.col("is_object"), "not a JSON object"),
        *((_is_missing(name), f"missing field: {name}") for name in REQUIRED),
        *((_is_of_other_type(name), f"wrong type: {name}") for name in REQUIRED),
        (_value("event_time").isNull(), "event_time unreadable"),
        *((~condition, reason) for condition, reason in _ranges(limits, _value)),
    ]
    (first, reason), *others = rules
    verdict = F.when(first, reason)
    for broken, reason in others:
        verdict = verdict.when(broken, reason)
    # Valid, but with a key in escapes or twice; no producer writes that.
    return verdict.otherwise("unusual JSON")


def _ranges(limits: Limits, value: Callable[[str], Column]) -> list[tuple[Column, str]]:
    """Conditions on values of the right type, and the reason to give when one isn't met."""
    earliest = F.lit(limits.event_time_earliest).cast("timestamp")
    # The record's broker time, not the clock: a second reading of the topic must judge the same.
    latest = F.col("timestamp") + F.expr(f"interval {limits.event_time_ahead_seconds} seconds")
    return [
        (value("event_time").between(earliest, latest), "event_time out of range"),
        (value("status").between(100, 599), "status out of range"),
        (value("bytes") >= 0, "bytes out of range"),
    ]


def _is_other_json() -> Column:
    """One JSON value, but an array or a scalar."""
    one_value = F.expr("json_array_length(concat('[', text, ']'))") == 1
    return F.coalesce(one_value & ~F.ltrim("text").startswith("{"), F.lit(False))


def _is_missing(name: str) -> Column:
    """Absent, null, or text that no reader could take (half a surrogate pair)."""
    return F.coalesce(F.schema_of_variant(name) == "VOID", F.lit(True))


def _is_of_other_type(name: str) -> Column:
    """Also a number too large for its column. A time is text until it is read as one."""
    json_type = "BIGINT" if REQUIRED[name] in ("int", "bigint") else "STRING"
    fits = F.lit(True) if name == "event_time" else _value(name).isNotNull()
    return (F.schema_of_variant(name) != json_type) | ~fits


def _value(name: str) -> Column:
    """A field's value out of its variant, null where it can't be had."""
    if name == "event_time":
        text = F.try_variant_get(name, "$", "string")
        return F.try_to_timestamp(text, F.lit(_STRICT["timestampFormat"]))
    return F.try_variant_get(name, "$", REQUIRED[name])
