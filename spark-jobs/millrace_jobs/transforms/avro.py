"""Values of Kafka's records that are Avro: the binary encoding by the stream's schema, alone.

Avro says neither which schema a value has nor where it ends, so what is read from other bytes may
look like an event. Therefore an event is only what these very bytes encode.
"""

from functools import reduce

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F
from pyspark.sql.avro.functions import from_avro, to_avro

from millrace_jobs.stream import Stream
from millrace_jobs.transforms import large, rules
from millrace_jobs.transforms.rules import Rule


def classify(records: DataFrame, stream: Stream) -> DataFrame:
    """As `parse.classify`. What can't be decoded has no fields."""
    assert stream.avro_schema
    value = F.when(F.col(large.SIZE) <= stream.record_bytes, F.col("value"))
    decoded = from_avro(value, stream.avro_schema, {"mode": "PERMISSIVE"})
    # Not decoded.field: the optimiser would decode again for each use of one.
    parsed = records.select(*records.columns, F.inline(F.array(decoded)))
    return parsed.withColumn("is_event", _is_event(stream))


def malformed(classified: DataFrame, stream: Stream) -> DataFrame:
    """As `parse.malformed`."""
    decoded = reduce(Column.__or__, (F.col(name).isNotNull() for name in stream.columns))
    broken = [
        *rules.of_values(stream),
        (~decoded, "not Avro of the stream's schema"),
        *((~condition, reason) for condition, reason in _rules(stream)),
    ]
    reason = rules.first(broken, otherwise="more than Avro of the stream's schema")
    others = classified.filter("not is_event").withColumn("reason", reason)
    return others.drop(*stream.columns, "is_event")


def _is_event(stream: Stream) -> Column:
    are_met = reduce(Column.__and__, (condition for condition, _ in _rules(stream)))
    assert stream.avro_schema
    encoded = to_avro(F.struct(*stream.columns), stream.avro_schema)
    return F.coalesce(F.when(are_met, encoded == F.col("value")), F.lit(False))


def _rules(stream: Stream) -> list[Rule]:
    """Conditions on what was decoded, and the reason to give when one isn't met."""
    texts = [field.name for field in stream.fields if field.type == "text"]
    return [
        *((F.col(one.name).isNotNull(), f"missing field: {one.name}") for one in stream.required),
        *((_is_utf8(name), f"not UTF-8: {name}") for name in texts),
        *rules.emptiness(stream, rules.column),
        *rules.characters(stream, rules.column),
        *rules.ranges(stream, rules.column),
    ]


def _is_utf8(name: str) -> Column:
    """Avro's decoder takes whatever bytes it is given."""
    return F.coalesce(F.is_valid_utf8(name), F.lit(True))
