"""How far a source has come. The record is in Kafka, written with the events it speaks of."""

import json
from dataclasses import asdict, dataclass

HOUR = 3600


@dataclass(frozen=True, slots=True)
class Progress:
    """``lines`` of the source are in Kafka; the next one begins at byte ``offset``."""

    source: str  # its name, for whoever reads the topic
    run: str
    shift: int = 0  # hours added to every event's time, decided once for the whole run
    format: str = ""  # of the log, decided likewise: a known one's name, or a format string
    lines: int = 0
    offset: int = 0
    malformed: int = 0
    done: bool = False
    updated: str = ""  # ISO 8601, UTC

    def to_json(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @classmethod
    def from_json(cls, record: bytes) -> "Progress":
        return cls(**json.loads(record))
