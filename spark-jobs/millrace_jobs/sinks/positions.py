"""How far a job has read, in Kafka's own terms, for whoever asks for its lag.

The results sink commits positions with its records. A job without results, or in real time, tells
them here; its checkpoint is what it goes by, so one that is lost matters to nobody for longer than
a batch.
"""

import time
from functools import cached_property
from typing import Any

from confluent_kafka import Consumer, KafkaError, TopicPartition

from millrace_jobs.inputs.checkpoint import Checkpoint, Offsets

LOOK_SECONDS = 1.0


class Positions:
    """Of one consumer group, which reads nothing but where a partition ends."""

    def __init__(self, brokers: str, group: str) -> None:
        self._settings = {
            "bootstrap.servers": brokers,
            "group.id": group,
            "enable.auto.commit": False,
            "enable.partition.eof": True,
        }

    @cached_property
    def _group(self) -> Any:
        """Has threads of its own from its beginning, and a job that is only prepared needs none."""
        return Consumer(self._settings)

    def tell(self, read: Offsets) -> None:
        """Commit beside whatever comes next: nothing waits for it, and nothing fails with it."""
        positions = [
            TopicPartition(topic, int(partition), offset)
            for topic, partitions in read.items()
            for partition, offset in partitions.items()
        ]
        self._group.commit(offsets=positions, asynchronous=True)

    def past_markers(self, topic: str, offsets: dict[str, int]) -> dict[str, int]:
        """The ends of those partitions in which nothing is left to read from these offsets on.

        The end of a transaction takes an offset, too. A query in real time stays before it, and
        would seem to be behind for as long as no other record comes.
        """
        ends: dict[str, int] = {}
        asked = set(offsets)
        self._group.assign(
            [TopicPartition(topic, int(number), offsets[number]) for number in asked]
        )
        deadline = time.monotonic() + LOOK_SECONDS
        while asked and (left := deadline - time.monotonic()) > 0:
            found = self._group.poll(left)
            if found is None or str(found.partition()) not in asked:
                continue
            asked.remove(number := str(found.partition()))
            if found.error() and found.error().code() == KafkaError._PARTITION_EOF:
                ends[number] = found.offset()
        self._group.unassign()
        return ends

    def tell_last(self, checkpoint: Checkpoint) -> None:
        """What the driver before this one may have left untold; an idle topic has no next batch."""
        last = checkpoint.last_committed()
        if last >= 0:
            self.tell(checkpoint.batch(last).end)
