"""How a load comes: by Kafka's own protocol, or over HTTP."""

from typing import Literal

Door = Literal["kafka", "collector"]
