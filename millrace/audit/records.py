"""The records that the results must be made of: the runs' own, and those of others. Pure.

One row for each record of the events topic: an event's fields, ``partition`` and ``offset``, and
``arrived``, in seconds since 1970, when a broker (or else the producer) had it.
"""

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from millrace.audit.truth import epoch_seconds
from millrace.ledger.events import numbers_of
from millrace.ledger.store import Ledger

# What windows and pages are counted from.
FIELDS = ["event_time", "visitor_id", "method", "url", "status", "bytes", "kind"]


def of_run(ledger: Ledger, rows: pa.Table) -> pa.Table:
    """The rows that are events of this run."""
    return rows.filter(pc.starts_with(rows["event_id"], ledger.spec.prefix))


def own_records(ledger: Ledger, rows: pa.Table) -> pa.Table:
    """Returns all that was acknowledged, archived or not, and what was in doubt and is archived.

    Each event once, however often it is archived: one that is there twice must not count twice.
    """
    found = of_run(ledger, rows)
    in_archive, first = np.unique(numbers_of(ledger.spec, found["event_id"]), return_index=True)
    acked = np.flatnonzero(ledger.acked)
    numbers = np.union1d(acked, in_archive)
    partition = np.full(len(numbers), -1, np.int64)
    offset = np.full(len(numbers), -1, np.int64)
    arrived = np.full(len(numbers), -1, np.int64)

    place = np.searchsorted(numbers, in_archive)
    partition[place] = found["partition"].to_numpy()[first]
    offset[place] = found["offset"].to_numpy()[first]
    arrived[place] = epoch_seconds(found["timestamp"])[first]

    unseen = arrived < 0
    lost = numbers[unseen]
    partition[unseen] = ledger.partition[lost]
    offset[unseen] = ledger.offset[lost]
    arrived[unseen] = (ledger.started + ledger.acked_ms[lost] / 1000).astype(np.int64)
    events = pa.concat_tables([some.select(FIELDS) for some in ledger.portions(numbers)])
    return _table(events, partition, offset, arrived)


def foreign_records(ledgers: Sequence[Ledger], rows: pa.Table) -> pa.Table:
    """Returns what others sent; a record that is archived twice is one record."""
    for ledger in ledgers:
        rows = rows.filter(pc.invert(pc.starts_with(rows["event_id"], ledger.spec.prefix)))
    places = (rows["partition"].to_numpy().astype(np.int64) << 48) | rows["offset"].to_numpy()
    _, first = np.unique(places, return_index=True)
    rows = rows.take(pa.array(first))
    return _table(
        rows,
        rows["partition"].to_numpy().astype(np.int64),
        rows["offset"].to_numpy(),
        epoch_seconds(rows["timestamp"]),
    )


def _table(
    events: pa.Table, partition: np.ndarray, offset: np.ndarray, arrived: np.ndarray
) -> pa.Table:
    places = {"partition": partition, "offset": offset, "arrived": arrived}
    records = events.select(FIELDS)
    records = records.cast(
        pa.schema([(field.name, _plain(field.type)) for field in records.schema])
    )
    for name, values in places.items():
        records = records.append_column(name, pa.array(values, pa.int64()))
    return records


def _plain(type_: pa.DataType) -> pa.DataType:
    return type_.value_type if pa.types.is_dictionary(type_) else type_
