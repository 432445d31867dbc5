"""A run of a load, as tests of the ledger and of the bench have it."""

from millrace.ledger.spec import Spec

SPEC = Spec(
    run="test",
    cluster="millrace-test",
    topic="events",
    partitions=3,
    acks="all",
    rate=1000,
    seconds=20,
    profile="steady",
    out_of_order=0.05,
    late=0.01,
    lateness=93_600,
    seed=7,
    started_ms=1_795_252_545_936,
    results_offsets=[0, 0, 0],
)
