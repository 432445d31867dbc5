"""A range of a topic as a reader sees it that trusts only what was committed."""

import time
from collections.abc import Iterator

import numpy as np

from millrace.cluster import kafka
from millrace.cluster.kafka import KafkaError, Message, TopicPartition
from millrace.common.errors import OperatorError
from millrace.plan import Plan

BATCH = 5000
POLL_SECONDS = 0.2  # a batch that isn't full takes this long
SILENCE_SECONDS = 60.0  # of a topic that should have more


def read(plan: Plan, topic: str, starts: np.ndarray, ends: np.ndarray) -> Iterator[Message]:
    """The records from ``starts`` up to but not including ``ends``, each partition in order.

    Raises OperatorError when the brokers fall silent.
    """
    consumer = kafka.consumer(
        kafka.fast_failover_client(plan)
        | {
            "group.id": "millrace-audit",  # required; nothing is ever committed to it
            # Compaction and retention may have removed the first offsets.
            "auto.offset.reset": "earliest",
        }
    )
    left = {p for p in range(len(ends)) if starts[p] < ends[p]}
    heard = time.monotonic()
    try:
        consumer.assign([TopicPartition(topic, p, int(starts[p])) for p in left])
        while left:
            records = consumer.consume(BATCH, POLL_SECONDS)
            heard = time.monotonic() if records else heard
            if time.monotonic() - heard > SILENCE_SECONDS:
                raise OperatorError(
                    f"topic {topic} can't be read to its end", "`millrace status` shows Kafka"
                )
            for record in records:
                partition, offset = record.partition(), record.offset()
                error = record.error()
                # The last offsets may be marks of transactions, which only the end tells about.
                if (error is None or error.code() == KafkaError._PARTITION_EOF) and (
                    offset >= ends[partition] - (error is None)
                ):
                    left.discard(partition)
                if error is None and offset < ends[partition]:
                    yield record
    finally:
        consumer.close()
