"""Which driver this is, as YARN and its host know it."""

import os
import socket
from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Identity:
    """``run`` is YARN's application, ``attempt`` which of its drivers this is, from 1."""

    run: str
    attempt: int
    host: str
    version: str
    jvm: int
    python: int

    @property
    def name(self) -> str:
        return f"{self.run}-{self.attempt}"


def identify(version: str, environment: Mapping[str, str] = os.environ) -> Identity:
    """Out of ``CONTAINER_ID``: container_e17_1410901177871_0001_01_000005, the epoch optional."""
    *_, cluster, application, attempt, _ = environment["CONTAINER_ID"].split("_")
    return Identity(
        run=f"application_{cluster}_{application}",
        attempt=int(attempt),
        host=socket.gethostname(),
        version=version,
        jvm=os.getppid(),  # in cluster mode the application master starts Python
        python=os.getpid(),
    )
