"""Where a record stands in Kafka: what it is named by, everywhere and for ever."""

from dataclasses import dataclass


@dataclass(frozen=True, order=True)
class Place:
    """Where a record stands in Kafka."""

    topic: str
    partition: int
    offset: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}-{self.offset}"
