"""Ends what a killed driver leaves behind, from a process of its own that outlives it.

A driver that is killed, by a hand or for memory, can't give its lease back, and ZooKeeper would
keep the standby waiting for the session's time-out. The system closes a dead process's pipes at
once: the guard waits for that, kills the driver's JVM if it still runs, takes the session over and
closes it. A driver whose host is lost loses its guard with it, and a frozen one keeps its pipe:
those still take the time-out.
"""

import contextlib
import logging
import os
import signal
import subprocess
import sys
from collections import deque
from collections.abc import Iterable

from kazoo.client import KazooClient
from kazoo.exceptions import KazooException
from kazoo.handlers.threading import KazooTimeoutError

log = logging.getLogger(__name__)


class Watchdog:
    """A driver's end of the pipe. ``jvm`` is the process id of the driver's other half."""

    def __init__(self, hosts: str, lease_seconds: float, jvm: int) -> None:
        # Not of the driver's process group, which YARN ends as a whole.
        self._process = subprocess.Popen(
            [
                sys.executable,
                "-m",
                "millrace_jobs.leadership.watchdog",
                hosts,
                str(lease_seconds),
                str(jvm),
            ],
            stdin=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )

    def protect(self, session: tuple[int, bytes]) -> None:
        """The session, with its password, that is to end with this process from now on."""
        identifier, password = session
        assert self._process.stdin
        try:
            print(identifier, password.hex(), file=self._process.stdin, flush=True)
        except OSError as error:
            log.warning(
                "the guard is gone (%s): a dead driver's lease ends with its time-out", error
            )

    def dismiss(self) -> None:
        """End the watchdog, because the session has ended in good order."""
        self._process.kill()
        self._process.wait()


def main(hosts: str, lease_seconds: float, jvm: int, pipe: Iterable[str]) -> None:
    """Waits for the driver's end; each line that comes before it names the session anew."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)  # YARN's, to whatever a container leaves behind
    handle = os.pidfd_open(jvm)  # the number may be another process's by then
    sessions = deque(pipe, maxlen=1)
    with contextlib.suppress(ProcessLookupError):
        signal.pidfd_send_signal(handle, signal.SIGKILL)
    if sessions:
        identifier, password = sessions.pop().split()
        end((int(identifier), bytes.fromhex(password)), hosts, lease_seconds)


def end(session: tuple[int, bytes], hosts: str, lease_seconds: float) -> None:
    """After ``lease_seconds`` the session has ended by itself."""
    client = KazooClient(hosts, timeout=lease_seconds, client_id=session)
    with contextlib.suppress(KazooException, KazooTimeoutError):
        client.start(lease_seconds)
    client.stop()


if __name__ == "__main__":
    main(sys.argv[1], float(sys.argv[2]), int(sys.argv[3]), sys.stdin)
