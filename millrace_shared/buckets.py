"""Which of a day's partitions a row is in, by its key: jobs deal rows so, the API finds them so.

It is the same in every process, for ever: rows that are stored stay where they are.
"""

import json
import zlib
from collections.abc import Sequence
from datetime import date, datetime
from typing import Any


def bucket(key: Sequence[Any], buckets: int) -> int:
    """From 0, of so many ``buckets``. A key is what tells a window's rows apart, in order."""
    return zlib.crc32(json.dumps([plain(part) for part in key]).encode()) % buckets


def plain(value: Any) -> Any:
    """A value as JSON has it. Spark's rows have times in UTC without saying so, as Cassandra's."""
    if isinstance(value, datetime):
        return value.isoformat() + "Z"
    if isinstance(value, date):
        return value.isoformat()
    if isinstance(value, bytes | bytearray):
        return bytes(value).hex()
    return value
