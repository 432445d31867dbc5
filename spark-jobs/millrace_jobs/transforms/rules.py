"""What holds of an event whatever its format, and the reason why a record is none."""

from collections.abc import Callable, Iterable

from pyspark.sql import Column
from pyspark.sql import functions as F

from millrace_jobs.stream import Field, Stream
from millrace_jobs.transforms import large

Rule = tuple[Column, str]


def first(broken: Iterable[Rule], otherwise: str) -> Column:
    """The reason of the first rule that a record breaks."""
    (condition, reason), *others = broken
    verdict = F.when(condition, reason)
    for condition, reason in others:
        verdict = verdict.when(condition, reason)
    return verdict.otherwise(otherwise)


def of_values(stream: Stream) -> list[Rule]:
    """What may be wrong with a value before it is looked at."""
    too_large = F.col(large.SIZE) > stream.record_bytes
    return [
        (F.col("value").isNull(), "no value"),
        (too_large, f"larger than {stream.record_bytes} bytes"),
    ]


def column(field: Field) -> Column:
    return F.col(field.name)


def emptiness(stream: Stream, value: Callable[[Field], Column]) -> list[Rule]:
    """Conditions on required texts, and the reason to give when one isn't met."""
    return [(value(field) != "", f"{field.name} is empty") for field in _texts(stream)]


def characters(stream: Stream, value: Callable[[Field], Column]) -> list[Rule]:
    """As `emptiness`."""
    return [
        (~value(field).contains("\0"), f"{field.name} has the character NUL")
        for field in _texts(stream)
    ]


def _texts(stream: Stream) -> list[Field]:
    return [field for field in stream.required if field.type == "text"]


def ranges(stream: Stream, value: Callable[[Field], Column]) -> list[Rule]:
    """Conditions on values of the right type, and the reason to give when one isn't met."""
    return [
        (_in_range(field, value(field)), f"{field.name} out of range")
        for field in stream.required
        if field.type != "text"
    ]


def _in_range(field: Field, value: Column) -> Column:
    if field.is_number:
        assert field.minimum is not None
        assert field.maximum is not None
        return value.between(field.minimum, field.maximum)
    assert field.ahead_seconds is not None  # else it is a text, which has no range
    earliest = F.lit(field.earliest).cast("timestamp")
    # The record's broker time, not the clock: a second reading of the topic must judge the same.
    # As numbers: adding an interval goes by way of calendar and zone.
    latest = F.unix_micros("timestamp") + 1_000_000 * field.ahead_seconds
    return (value >= earliest) & (F.unix_micros(value) <= latest)
