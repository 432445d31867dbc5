"""What the bench of the archive's size archives: the load's events, with two kinds of ids."""

import numpy as np

from bench import report, sample
from bench.archived import IDS
from bench.record import read_records
from millrace.ledger.events import events

EVENTS = events(sample.spec(100, 1.0, 0), np.arange(100))


def test_random_ids_are_as_many_and_nothing_else_differs() -> None:
    made = IDS["random"](EVENTS)
    assert len(set(made["event_id"].to_pylist())) == 100
    assert {len(own) for own in made["event_id"].to_pylist()} == {32}
    assert made.drop_columns("event_id") == IDS["numbers"](EVENTS).drop_columns("event_id")


def test_the_table_has_the_share_of_each() -> None:
    [record] = [record for record in read_records() if record["kind"] == "archived"]
    [section] = report.sections(record)
    shares = {row[0]: float(row[3]) for row in section.rows}
    assert 0 < shares["numbers"] < shares["random"] < 1
