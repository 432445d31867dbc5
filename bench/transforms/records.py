"""What `millrace load` would send, as Kafka's records in files, in each format."""

import io
import json
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import fastavro  # of the bench's own requirements
import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq

from bench import sample
from millrace.ledger.events import encode, events
from millrace.plan import load_plan
from millrace.plan.streams import FieldPlan

CORES = 2  # and as many files
SECONDS = 60.0
STARTED_MS = 1_800_000_000_000
AVRO_TYPES: dict[str, Any] = {
    "text": "string",
    "time": {"type": "long", "logicalType": "timestamp-millis"},
    "integer": "int",
    "long": "long",
}
RECORDS = pa.schema(
    {
        "key": pa.binary(),
        "value": pa.binary(),
        "topic": pa.string(),
        "partition": pa.int32(),
        "offset": pa.int64(),
        "timestamp": pa.timestamp("us", "UTC"),
        "headers": pa.list_(pa.struct({"key": pa.string(), "value": pa.binary()})),
    }
)


def stream(format: str) -> dict[str, Any]:
    """The plan's ``streams.events``, as it would be if its values were of this format."""
    plan = load_plan("local").streams["events"]
    content = plan.model_dump()
    return content | {"avro_schema": avro_schema(plan.fields)} if format == "avro" else content


def avro_schema(fields: Mapping[str, FieldPlan]) -> str:
    own = [
        {
            "name": name,
            "type": AVRO_TYPES[field.type] if field.required else ["null", AVRO_TYPES[field.type]],
        }
        for name, field in fields.items()
    ]
    return json.dumps({"type": "record", "name": "event", "fields": own})


def write(folder: Path, count: int) -> dict[str, float]:
    """A minute of events, in each format a file for each core; the mean size of a value in each."""
    spec = sample.spec(count, SECONDS, STARTED_MS)
    sizes: dict[str, float] = {}
    for format, values_of in ENCODINGS.items():
        (folder / format).mkdir()
        size = 0
        for partition, numbers in enumerate(np.array_split(np.arange(count), CORES)):
            records = values_of(events(spec, numbers))
            write_file(folder / format / f"{partition}.parquet", partition, records)
            size += sum(len(value) for _, value in records)
        sizes[format] = round(size / count, 1)
    return sizes


def write_file(file: Path, partition: int, records: list[tuple[bytes, bytes]]) -> None:
    received = int(STARTED_MS + 1000 * SECONDS) * 1000
    rows = [
        (key, value, "events", partition, offset, received, None)
        for offset, (key, value) in enumerate(records)
    ]
    columns = map(pa.array, zip(*rows, strict=True), RECORDS.types)
    pq.write_table(pa.table(list(columns), RECORDS), file, compression="none")


def in_avro(table: pa.Table) -> list[tuple[bytes, bytes]]:
    """As `encode`, but for the format of values."""
    schema = fastavro.parse_schema(json.loads(stream("avro")["avro_schema"]))
    rows = table.to_pylist()
    values = [io.BytesIO() for _ in rows]
    for value, row in zip(values, rows, strict=True):
        fastavro.schemaless_writer(value, schema, row)
    return [
        (row["visitor_id"].encode(), value.getvalue())
        for row, value in zip(rows, values, strict=True)
    ]


ENCODINGS: Mapping[str, Callable[[pa.Table], list[tuple[bytes, bytes]]]] = {
    "json": encode,
    "avro": in_avro,
}
