"""How many bytes of Parquet an event takes in the archive, for each byte that it had in Kafka.

    python -m bench.archived --record

No Kafka and no cluster, and nothing is timed: what `millrace load` would send lies in a file, and
the archive's job writes one of it, as the upkeep leaves them. Once with the load's own ids, which
are numbers in a row, and once with random ones, as other producers have them.
"""

import argparse
import tempfile
from collections.abc import Callable, Mapping
from hashlib import blake2b
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from bench import sample
from bench.program import console, publish, run_program
from bench.record import new_record
from bench.transforms import records
from bench.transforms.__main__ import Variant, worker
from millrace.ledger.events import encode, events


def with_random_ids(table: pa.Table) -> pa.Table:
    """Ids as long as those of `millrace replay`, and as hard to compress."""
    ids = [
        blake2b(own.encode(), digest_size=16).hexdigest() for own in table["event_id"].to_pylist()
    ]
    return table.set_column(table.schema.get_field_index("event_id"), "event_id", pa.array(ids))


IDS: Mapping[str, Callable[[pa.Table], pa.Table]] = {
    "numbers": lambda table: table,
    "random": with_random_ids,
}


def measured(folder: Path, ids: str, count: int) -> dict[str, Any]:
    """Mean bytes of an event, as a record's value and in the archive's file."""
    spec = sample.spec(count, records.SECONDS, records.STARTED_MS)
    made = encode(IDS[ids](events(spec, np.arange(count))))
    (folder / "json").mkdir(parents=True)
    records.write_file(folder / "json" / "0.parquet", 0, made)
    with worker(ids, Variant(), folder, count) as ask:
        archived = ask("archived")
    return {
        "ids": ids,
        "value_bytes": round(sum(len(value) for _, value in made) / count, 1),
        "archived_bytes": round(archived / count, 1),
    }


def main(arguments: list[str]) -> None:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--events", type=int, default=1_000_000)
    parser.add_argument("--record", action="store_true", help="keep it in docs/performance/")
    asked = parser.parse_args(arguments)
    with tempfile.TemporaryDirectory(prefix="millrace-bench-") as name:
        runs = []
        for ids in IDS:
            console.print(f"archiving {asked.events:,} events with ids that are {ids}")
            runs.append(measured(Path(name) / ids, ids, asked.events))
    publish(new_record("archived", {"events": asked.events}, {"runs": runs}), asked.record)


if __name__ == "__main__":
    run_program(main)
