"""The jobs' transforms: the same events in each format, what is no right result, the table."""

import io
import json
from datetime import datetime
from pathlib import Path
from typing import Any

import fastavro
import pyarrow.parquet as pq
import pytest

from bench import report
from bench.transforms import records
from bench.transforms.__main__ import COMPARISONS, right
from millrace.config.streams import AvroSchema

EVENTS = 500


def values(folder: Path, format: str) -> list[bytes]:
    files = sorted((folder / format).iterdir())
    return [value for file in files for value in pq.read_table(file)["value"].to_pylist()]


def test_each_format_says_the_same(tmp_path: Path) -> None:
    sizes = records.write(tmp_path, EVENTS)
    schema = json.loads(records.stream("avro")["avro_schema"])
    in_json, in_avro = values(tmp_path, "json"), values(tmp_path, "avro")
    assert len(in_json) == EVENTS
    for text, binary in zip(in_json, in_avro, strict=True):
        event = json.loads(text)
        event["event_time"] = datetime.fromisoformat(event["event_time"])
        read = fastavro.schemaless_reader(io.BytesIO(binary), schema)
        assert {name: value for name, value in read.items() if value is not None} == {
            name: value for name, value in event.items() if value is not None
        }
    assert sizes["avro"] == round(sum(map(len, in_avro)) / EVENTS, 1) < sizes["json"]


def test_the_product_would_take_the_schema() -> None:
    stream = records.stream("avro")
    schema = AvroSchema.model_validate(json.loads(stream["avro_schema"]))
    assert list(schema.problems(records.load_plan("local").streams["events"].fields)) == []


ROWS = [
    {"window": "1h", "requests": 5, "bytes": 7},
    {"window": "1m", "requests": 2, "bytes": 3},
    {"window": "1m", "requests": 3, "bytes": 4},
]


class TestRight:
    def test_all_alike_and_complete_is(self) -> None:
        assert right([ROWS, list(ROWS)], 5)

    def test_an_event_more_is_not(self) -> None:
        assert not right([ROWS, ROWS], 6)

    @pytest.mark.parametrize("window", ["1h", "1m"])
    def test_what_is_missing_in_one_window_is_not(self, window: str) -> None:
        rows = [row for row in ROWS if row["window"] != window]
        assert not right([rows, rows], 5)

    def test_another_result_is_not(self) -> None:
        assert not right([ROWS, [ROWS[0] | {"bytes": 8}, *ROWS[1:]]], 5)


def test_variants_stand_beside_the_first_by_repetition() -> None:
    first, *others = COMPARISONS["formats"]
    costs: dict[str, Any] = {first: (10.0, 20.0)} | dict.fromkeys(others, (5.0, 30.0))
    runs = [
        {"step": "parse", "variant": variant, "core_us_per_event": own[number]}
        for number in range(2)
        for variant, own in costs.items()
    ]
    result = {"runs": runs, "correct": True, "value_bytes": {"json": 280.0, "avro": 140.0}}
    record = {"kind": "transforms-formats", "settings": {}, "result": result}
    [section] = report.sections(record)
    [[step, *_, times]] = section.rows
    assert (step, times) == ("parse", "1.00 (0.50–1.50)")
    assert "avro 140.0 B" in section.notes[1]
