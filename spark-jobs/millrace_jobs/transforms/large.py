"""Values that are larger than any event: cut before anything looks at them, and known all the same.

A producer's compression makes a record of 30 MB out of some KB, and each step that hands a row on
copies its value. So a value beyond what its stream takes becomes its head, its size and its hash in
the first step behind Kafka: it is no event, and a dead letter needs no more of it.
"""

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

SIZE = "value_size"  # in bytes; null without a value
HASH = "value_sha256"  # in hexadecimal digits


def cut(records: DataFrame, most_bytes: int) -> DataFrame:
    """Each record with its value's first bytes, its size and, if it was cut, its hash."""
    size = F.octet_length("value")
    is_large = size > most_bytes
    return records.withColumns(
        {
            SIZE: size,
            HASH: F.when(is_large, F.sha2("value", 256)),
            "value": F.when(is_large, F.substring("value", 1, most_bytes)).otherwise(
                F.col("value")
            ),
        }
    )
