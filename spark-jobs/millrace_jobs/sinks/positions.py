"""How far a job has read, in Kafka's own terms, for whoever asks for its lag.

The results sink commits positions with its records. A job without results tells them here; its
checkpoint is what it goes by, so one that is lost matters to nobody for longer than a batch.
"""

from typing import Any

from confluent_kafka import Consumer, TopicPartition

from millrace_jobs.checkpoint import Checkpoint, Offsets


class Positions:
    """Of one consumer group, which never reads."""

    def __init__(self, brokers: str, group: str) -> None:
        self._group: Any = Consumer({"bootstrap.servers": brokers, "group.id": group})

    def tell(self, read: Offsets) -> None:
        """Commit beside whatever comes next: nothing waits for it, and nothing fails with it."""
        positions = [
            TopicPartition(topic, int(partition), offset)
            for topic, partitions in read.items()
            for partition, offset in partitions.items()
        ]
        self._group.commit(offsets=positions, asynchronous=True)

    def tell_last(self, checkpoint: Checkpoint) -> None:
        """What the driver before this one may have left untold; an idle topic has no next batch."""
        last = checkpoint.last_committed()
        if last >= 0:
            self.tell(checkpoint.batch(last).end)
