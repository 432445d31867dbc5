"""Events as the load's, that no load sends. Pure."""

import numpy as np

from millrace.ledger.events import encode, events
from millrace.ledger.spec import PAGES, Spec

OUT_OF_ORDER = 0.05
SEED = 1
SIZED = 2000


def spec(
    count: int,
    seconds: float,
    started_ms: int,
    topic: str = "events",
    partitions: int = 1,
    pages: int = PAGES,
) -> Spec:
    """So many events that fill so long a time; no two are alike."""
    return Spec(
        run=topic,
        cluster="bench",
        topic=topic,
        partitions=partitions,
        acks="all",
        rate=count / seconds,
        seconds=seconds,
        profile="steady",
        out_of_order=OUT_OF_ORDER,
        late=0.0,
        lateness=0,
        seed=SEED,
        started_ms=started_ms,
        results_offsets=[],
        pages=pages,
        pool=count,
    )


def value_bytes(pages: int) -> float:
    """The mean size of an event's value."""
    records = encode(events(spec(SIZED, 1.0, 0, pages=pages), np.arange(SIZED)))
    return sum(len(value) for _, value in records) / SIZED
