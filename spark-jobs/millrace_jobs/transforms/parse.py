"""Kafka records → events, or the reason why not.

Total: `classify` says of each record whether it is an event, and `malformed` gives each of the
others the first rule that it breaks. Nothing that a job relies on is coerced or nulled on the way.

Two steps, because nearly all records are events. The first is cheap and only says yes or no; the
second reads the others again, with a parser that keeps the types, to explain. That is so of JSON,
here; what is Avro knows its types.
"""

from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from millrace_jobs.stream import Field, Stream
from millrace_jobs.transforms import avro, large, rules
from millrace_shared.record_rules import LONG_BYTES, MOST_DIGITS, MOST_NESTED, TIME

# Where a record stands in Kafka; ``timestamp`` is the brokers' clock.
COORDINATES = {
    "topic": "string",
    "partition": "int",
    "offset": "bigint",
    "timestamp": "timestamp",
}

_STRICT = {
    "allowSingleQuotes": "false",
    "allowNonNumericNumbers": "false",
    "maxNestingDepth": str(MOST_NESTED + 1),  # with the array that a record is put into
    "maxNumLen": str(MOST_DIGITS),
}
# What a cast may be given, which takes much more. To read by a format cost a tenth of `classify`.
_TIME_TEXT = rf"^(?:{TIME})\z"
_DEEPEST_OF_SPARK = 1000  # Jackson's own bound, where a function has no option for it
# Of a surrogate pair, in a text whose escaped backslashes are gone.
_HALF_PAIR = (
    r"\\u[dD][89abAB][0-9a-fA-F]{2}(?!\\u[dD][c-fC-F])"
    r"|(?<!\\u[dD][89abAB][0-9a-fA-F]{2})\\u[dD][c-fC-F]"
)


def classify(records: DataFrame, stream: Stream) -> DataFrame:
    """Each record with its fields and ``is_event``, without which the fields mean nothing.

    A value that is too large for an event is cut first: see `large`.
    """
    records = records.transform(large.cut, stream.record_bytes)
    if stream.avro_schema:
        return avro.classify(records, stream)
    texts = records.withColumn("text", _text(stream))
    parsed = texts.transform(_with_fields, stream.columns)
    return parsed.withColumn("is_event", _is_event(stream))


def valid(classified: DataFrame, stream: Stream) -> DataFrame:
    """The records that are events, with their fields."""
    return classified.filter("is_event").select(*stream.columns, *COORDINATES)


def malformed(classified: DataFrame, stream: Stream) -> DataFrame:
    """The records that are no events, as `large.cut` leaves them, each with its reason."""
    if stream.avro_schema:
        return avro.malformed(classified, stream)
    records = classified.filter("not is_event").drop(*stream.columns, "is_object", "is_event")
    return (
        records.transform(_with_fields, {field.name: "variant" for field in stream.required})
        .withColumn("reason", _reason(stream))
        .select(*records.columns, "reason")
        .drop("text")
    )


def _text(stream: Stream) -> Column:
    """The value as a string; null if it is too large to be looked at, or isn't UTF-8.

    Said explicitly, because a cast from bytes to a string takes whatever it is given.
    """
    text = F.try_validate_utf8(F.col("value").cast("string"))
    return F.when(F.col(large.SIZE) <= stream.record_bytes, text)


def _with_fields(records: DataFrame, fields: dict[str, str]) -> DataFrame:
    """The fields of the JSON object that ``text`` is; all null if it isn't one.

    The text is parsed as the content of an array: a parser that expects one value stops after it
    and would accept whatever follows. The fields leave an array by ``inline``, because the
    optimiser never merges expressions across it; else it would parse again for each use of a field.
    """
    times = {name for name, kind in fields.items() if kind == "timestamp"}
    read_as = fields | dict.fromkeys(times, "string")
    schema = ", ".join(f"{name} {kind}" for name, kind in read_as.items())
    # A parser says no by an exception, which costs more than ten records that it reads; what
    # a producer sends that has changed its format seldom begins as an object does.
    object_like = F.when(
        F.col("text").startswith("{") | F.col("text").rlike(r"^\s+\{"), F.col("text")
    )
    as_array = F.concat(F.lit("["), object_like, F.lit("]"))
    parsed = records.withColumn(
        "parsed", F.from_json(as_array, f"array<struct<{schema}>>", _STRICT)
    )
    found = F.get("parsed", F.lit(0))
    is_object = (F.size("parsed") == 1) & found.isNotNull() & _is_whole()
    values = F.struct(
        *((_time(found[name]) if name in times else found[name]).alias(name) for name in fields)
    )
    return parsed.select(
        *records.columns,
        F.coalesce(is_object, F.lit(False)).alias("is_object"),
        F.inline_outer(F.when(is_object, F.array(values))),
    )


def _is_whole() -> Column:
    """The text is JSON to its end, as a second parser finds that reads each character of it.

    The first one stops behind its array, which a bracket in the text may end. And a field whose
    text has a character or an escape that JSON hasn't becomes null there, while it goes on right
    behind the character, as if that had been the text's end. Costs a seventh of `classify`.
    """
    return _length_of("[", F.col("text"), ",0]") == 2


def _length_of(*parts: str | Column) -> Column:
    """Of a JSON array; 0 if it is none."""
    array = F.concat(*(F.lit(part) if isinstance(part, str) else part for part in parts))
    return F.coalesce(F.json_array_length(array), F.lit(0))


def _time(text: Column) -> Column:
    zoned = F.when(text.endswith("z"), F.upper(text)).otherwise(text)
    return F.when(text.rlike(_TIME_TEXT), zoned.try_cast("timestamp"))


def _is_event(stream: Stream) -> Column:
    conditions = [
        *(F.col(field.name).isNotNull() for field in stream.required),
        *(_is_quoted(field.name) for field in stream.required if not field.is_number),
        *_met(rules.emptiness(stream, rules.column)),
        *_met(rules.ranges(stream, rules.column)),
        # Each of these costs as much as reading the record, and nearly all records spare them.
        ~_has_escapes()
        | reduce(
            Column.__and__, [_has_whole_pairs(), *_met(rules.characters(stream, rules.column))]
        ),
        ~_is_long() | _is_shallow(),
    ]
    return F.coalesce(reduce(Column.__and__, conditions), F.lit(False))


def _met(found: list[rules.Rule]) -> list[Column]:
    return [condition for condition, _ in found]


def _has_escapes() -> Column:
    """Of characters by their numbers."""
    return F.col("text").contains("\\u")


def _has_whole_pairs() -> Column:
    return ~F.replace("text", F.lit("\\\\"), F.lit("--")).rlike(_HALF_PAIR)


def _is_long() -> Column:
    return F.octet_length("text") > LONG_BYTES


def _is_shallow() -> Column:
    """What is too deep in an optional field doesn't stop the parser: it makes the field null."""
    around = _DEEPEST_OF_SPARK - MOST_NESTED
    return _length_of("[" * around, F.col("text"), "]" * around) == 1


def _is_quoted(name: str) -> Column:
    """The field was written as a string.

    ``from_json`` turns anything into text where text is declared. Looking for the quote costs a
    tenth of a parser that keeps types; the pattern is for those who put blanks around the colon.
    """
    text = F.col("text")
    return text.contains(f'"{name}":"') | text.rlike(rf'"{name}"\s*:\s*"')


def _reason(stream: Stream) -> Column:
    """The first rule that a record breaks, most fundamental first."""
    times = [field for field in stream.required if field.type == "time"]
    broken = [
        *rules.of_values(stream),
        (F.col("text").isNull(), "not UTF-8"),
        (~F.col("is_object") & ~_is_one_value(), "not JSON"),
        (~F.col("is_object") & ~F.ltrim("text").startswith("{"), "not a JSON object"),
        (~F.col("is_object") | _is_long() & ~_is_shallow(), "nested too deeply"),
        (_has_escapes() & ~_has_whole_pairs(), "half a surrogate pair"),
        *((_is_missing(field), f"missing field: {field.name}") for field in stream.required),
        *((_is_of_other_type(field), f"wrong type: {field.name}") for field in stream.required),
        *((_value(field).isNull(), f"{field.name} unreadable") for field in times),
        *((~condition, reason) for condition, reason in rules.emptiness(stream, _value)),
        *((~condition, reason) for condition, reason in rules.characters(stream, _value)),
        *((~condition, reason) for condition, reason in rules.ranges(stream, _value)),
    ]
    # Valid, but with a key in escapes or twice; no producer writes that.
    return rules.first(broken, otherwise="unusual JSON")


def _is_one_value() -> Column:
    """Of JSON, as deep as Spark takes it."""
    options = _STRICT | {"maxNestingDepth": str(_DEEPEST_OF_SPARK)}
    as_array = F.concat(F.lit("["), F.col("text"), F.lit("]"))
    values = F.from_json(as_array, "array<string>", options)
    return F.coalesce(F.size(values) == 1, F.lit(False)) & _is_whole()


def _is_missing(field: Field) -> Column:
    """Absent or null."""
    return F.coalesce(F.schema_of_variant(field.name) == "VOID", F.lit(True))


def _is_of_other_type(field: Field) -> Column:
    """Also a number too large for its column. A time is text until it is read as one."""
    json_type = "BIGINT" if field.is_number else "STRING"
    fits = F.lit(True) if field.type == "time" else _value(field).isNotNull()
    return (F.schema_of_variant(field.name) != json_type) | ~fits


def _value(field: Field) -> Column:
    """A field's value out of its variant, null where it can't be had."""
    if field.type == "time":
        text = F.try_variant_get(field.name, "$", "string")
        return _time(text)
    return F.try_variant_get(field.name, "$", field.sql_type)
