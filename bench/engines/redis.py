"""A Redis server on loopback that has a table; gone with its context."""

import subprocess
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

from redis import Redis

from bench.engines.broker import answers, end, free_ports
from millrace.common.errors import OperatorError
from millrace.common.waiting import wait_until
from millrace.setup.packages import ensure_command

START_SECONDS = 30.0


@contextmanager
def redis(table: Mapping[str, str]) -> Iterator[int]:
    """Its port. Raises OperatorError when it doesn't start."""
    server = ensure_command("redis-server", ["redis-server"])
    [port] = free_ports(1)
    with tempfile.TemporaryDirectory(prefix="millrace-bench-redis-") as folder:
        command = [server, "--bind", "127.0.0.1", "--port", str(port), "--dir", folder]
        with subprocess.Popen([*command, "--save", ""], stdout=subprocess.DEVNULL) as process:
            try:
                if not wait_until(lambda: answers(f"127.0.0.1:{port}"), START_SECONDS):
                    raise OperatorError("the bench's Redis doesn't start")
                with Redis("127.0.0.1", port) as client:
                    client.mset(dict(table))
                yield port
            finally:
                end(process)
