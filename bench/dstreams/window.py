"""A sliding window as D-Streams have it: the counts of an interval, added up over the last ones.

An interval's counts are a file of its own that is never changed, so a batch that runs again finds
what it found the first time. Times are the batches' own, of Spark's log of offsets.
"""

from pathlib import Path

import pyarrow as pa
import pyarrow.compute as pc
from pyarrow import feather

WINDOW_MS = 30_000
WORD, COUNT = "word", "count"


def keep(folder: Path, time_ms: int, counts: pa.Table) -> None:
    folder.mkdir(exist_ok=True)
    feather.write_feather(counts, str(folder / f"{time_ms}.arrow"), compression="uncompressed")


def newest(folder: Path, time_ms: int) -> pa.Table:
    """Each word's count in the intervals of the 30 s until then; older ones are forgotten."""
    counts = []
    for path in folder.iterdir():
        taken = int(path.stem)
        if taken <= time_ms - WINDOW_MS:
            path.unlink()
        elif taken <= time_ms:
            counts.append(feather.read_table(str(path)))
    summed = pa.concat_tables(counts).group_by(WORD).aggregate([(COUNT, "sum")])
    return summed.rename_columns([WORD, COUNT])


def top(counts: pa.Table, k: int) -> pa.Table:
    """The most frequent words; of equally frequent ones, the first by name."""
    order = [(COUNT, "descending"), (WORD, "ascending")]
    return counts.take(pc.select_k_unstable(counts, k, order))
