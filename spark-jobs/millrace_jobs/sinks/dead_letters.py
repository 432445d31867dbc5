"""Dead letters: the original bytes to a topic, counts and some samples to Cassandra.

Of a value that is larger than an event may be, a letter has the beginning, the size and the hash.

A record's place in its topic is its key in the topic and of a sample, and counts are those of a
batch, so a batch that ran twice leaves each letter once and counts it once. A producer that changes
its format makes all its records malformed, millions of them: the bytes go from executors straight
to Kafka, and the driver sees as much as there are reasons in a minute.
"""

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from millrace_jobs.inputs.sources import connecting
from millrace_jobs.settings import JobSettings
from millrace_jobs.sinks.cassandra import Tables
from millrace_jobs.transforms.large import HASH, SIZE

PREVIEW_CHARACTERS = 200
HEADERS_BYTES = 32 * 1024  # of the original ones; more of them aren't kept
SAMPLE_COLUMNS = ("bucket", "id", "reason", "size", "preview", "kafka_timestamp")
BATCH_COLUMNS = ("checkpoint", '"batch"', "records")
COUNT_COLUMNS = ("bucket", "minute", "reason", "checkpoint", '"batch"', "records")


class DeadLetters:
    """Each letter is made of a record as `large.cut` leaves it; ``dead_letter_request_bytes`` is
    what is sent at once."""

    def __init__(self, brokers: str, topic: str, tables: Tables, settings: JobSettings) -> None:
        request_bytes = settings.dead_letter_request_bytes
        self._tables = tables
        self._samples = settings.dead_letter_samples
        self._sink = {
            "kafka.bootstrap.servers": brokers,
            **connecting(settings),
            "topic": topic,
            "kafka.acks": "all",
            "kafka.max.request.size": str(request_bytes),
        }

    def write(self, malformed: DataFrame, checkpoint: str, batch: int, version: int) -> None:
        """Send all, count all, and keep ``dead_letter_samples`` of each minute and reason."""
        letters(malformed).write.format("kafka").options(**self._sink).save()
        rows = summary(malformed, self._samples).collect()
        counts = [
            (row.minute.date(), row.minute, row.reason, checkpoint, batch, row.records)
            for row in rows
        ]
        samples = [
            (row.minute.date(), sample.id, row.reason, *sample[1:])
            for row in rows
            for sample in row.samples
        ]
        total = [(checkpoint, batch, sum(row.records for row in rows))] if rows else []
        self._tables.upsert("dead_letter_batches", BATCH_COLUMNS, total, version)
        self._tables.upsert("dead_letter_counts", COUNT_COLUMNS, counts, version)
        self._tables.upsert("dead_letters", SAMPLE_COLUMNS, samples, version)


def letters(malformed: DataFrame) -> DataFrame:
    """Kafka records with the original bytes, the original headers and ours."""
    facts = {
        "size": F.coalesce(F.col(SIZE), F.lit(0)),
        "sha256": F.coalesce(HASH, F.sha2(F.coalesce("value", F.lit(b"")), 256)),
        "reason": F.col("reason"),
        "topic": F.col("topic"),
        "partition": F.col("partition"),
        "offset": F.col("offset"),
        "timestamp": F.date_format("timestamp", "yyyy-MM-dd'T'HH:mm:ss.SSSX"),
    }
    ours = F.array(*(_header(name, value) for name, value in facts.items()))
    return malformed.select(
        _id().alias("key"),
        "value",
        F.concat(ours, _bounded_headers()).alias("headers"),
    )


def summary(malformed: DataFrame, samples: int) -> DataFrame:
    """For each minute of Kafka's time and reason: how many, and the first so many of them.

    First by their place in the topic, so that a batch that runs again keeps the same ones.
    """
    # Cut as bytes first: most of the value isn't shown. What isn't UTF-8 shows as question marks.
    beginning = F.substring("value", 1, 4 * PREVIEW_CHARACTERS).cast("string")
    sample = F.struct(
        _id().alias("id"),
        F.coalesce(F.col(SIZE), F.lit(0)).cast("bigint").alias("size"),
        F.left(F.make_valid_utf8(beginning), F.lit(PREVIEW_CHARACTERS)).alias("preview"),
        F.col("timestamp").alias("kafka_timestamp"),
    )
    described = malformed.select(
        F.date_trunc("minute", "timestamp").alias("minute"),
        "reason",
        sample.alias("sample"),
        F.struct("partition", "offset").alias("place"),
    )
    return described.groupBy("minute", "reason").agg(
        F.count("*").alias("records"),
        F.expr(f"min_by(sample, place, {int(samples)})").alias("samples"),
    )


def _bounded_headers() -> Column:
    """The original headers, unless they are too large to be kept. A value of one may be null."""

    def add(total: Column, header: Column) -> Column:
        value = F.coalesce(F.octet_length(header["value"]), F.lit(0))
        return total + F.octet_length(header["key"]) + value

    size = F.aggregate("headers", F.lit(0), add)
    return F.coalesce(F.when(size <= HEADERS_BYTES, F.col("headers")), F.array())


def _id() -> Column:
    return F.concat_ws("-", "topic", "partition", "offset")


def _header(name: str, value: Column) -> Column:
    return F.struct(F.lit(name).alias("key"), value.cast("string").cast("binary").alias("value"))
