"""The version that every write carries: a driver's fencing epoch, then its batch.

It is also the Cassandra write timestamp. There the higher timestamp wins cell by cell, whatever
order writes arrive in, so a driver that was replaced but is still alive (paused, cut off) can't
overwrite what its successor wrote. This holds as long as nobody writes these tables with an
ordinary timestamp (microseconds since 1970): ours are higher than those by a factor of 70.
"""

BATCH_BITS = 32


def write_version(epoch: int, batch: int) -> int:
    """One number that orders writes by epoch first; 31 bits of epoch fit a signed 64-bit column.

    Raises ValueError for a batch that would run over into the epoch.
    """
    if not 0 <= batch < 1 << BATCH_BITS:
        raise ValueError(f"batch {batch} doesn't fit into {BATCH_BITS} bits of a version")
    return epoch << BATCH_BITS | batch
