"""Sabotage: nothing keeps a driver that was replaced from writing what it had under way.

It asks for no lease, its writes to Cassandra are as new as the clock, and its producer of results
shares no identity with its successor's.
"""

import time
import uuid
from typing import Any

from confluent_kafka import Producer
from millrace_jobs.leadership.lease import Lease
from millrace_jobs.query.write_version import write_version
from millrace_jobs.sinks.cassandra import Tables
from millrace_jobs.sinks.results import Results

FREEZING_TIME = 1.5  # s, wherever the lease would be asked for: before a batch and each write

upsert_with_version = Tables.upsert
connect_as_job = Results.__init__


def upsert(
    self: Tables, table: str, columns: Any, rows: Any, timestamp: int, partition_columns: int = 1
) -> None:
    minutes, microseconds = divmod(time.time_ns() // 1000, 60_000_000)
    now = write_version(minutes + 1, microseconds)  # above any epoch that a driver has by now
    upsert_with_version(self, table, columns, rows, now, partition_columns)


def connect(self: Results, *arguments: Any, **named: Any) -> None:
    connect_as_job(self, *arguments, **named)
    self._settings |= {"transactional.id": f"{self._settings['transactional.id']}-{uuid.uuid4()}"}
    self._producer = Producer(self._settings)


Lease.confirm = lambda self: time.sleep(FREEZING_TIME)
Lease.verify = lambda self: None
Lease.is_lost = property(lambda self: False)
Tables.upsert = upsert
Results.__init__ = connect
Results._last_published = lambda self, checkpoint, read: (-1, False)
