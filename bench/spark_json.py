"""JSON on Spark, parsed once."""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F


def parsed(records: DataFrame, schema: str) -> DataFrame:
    """The fields of Kafka's values as columns.

    A condition on a column that comes of `from_json` is moved below it, and parses the value again;
    none is moved below a generator, which `inline` is.
    """
    event = F.from_json(F.col("value").cast("string"), schema)
    return records.select(F.inline(F.array(event)))
