"""The ledger: a load whose every event is known, and what Kafka said of each.

An event is a pure function of the run's specification and its number, so a ledger keeps only the
specification and each event's fate: acknowledged (where and when), failed, or in doubt.
"""

from typing import Literal

# How a load comes: by Kafka's own protocol, or over HTTP.
IngestPath = Literal["kafka", "collector"]
