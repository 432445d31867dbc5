"""A driver's connection to ZooKeeper gives up a lost server within a share of its session."""

import socket
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from millrace_jobs.leadership.zookeeper_client import FastReconnectHandler

SESSION_SECONDS = 2.5
SECONDS = 0.2


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen(0)
        yield server


def test_a_server_that_accepts_no_connection_is_left(listener: socket.socket) -> None:
    with ExitStack() as held:
        while not is_full(listener, held):
            pass
        began = time.monotonic()
        with pytest.raises(OSError, match="timed out"):
            FastReconnectHandler(SECONDS).create_connection(
                address=listener.getsockname(), timeout=SESSION_SECONDS
            )
        assert time.monotonic() - began < SESSION_SECONDS / 2


def is_full(listener: socket.socket, held: ExitStack) -> bool:
    """Take one more place in the listener's queue, as a lost host's port answers nobody."""
    client = held.enter_context(socket.socket())
    client.settimeout(SECONDS)
    try:
        client.connect(listener.getsockname())
    except TimeoutError:
        return True
    return False


def test_a_server_that_acknowledges_nothing_any_more_is_left(listener: socket.socket) -> None:
    handler = FastReconnectHandler(SECONDS)
    with handler.create_connection(
        address=listener.getsockname(), timeout=SESSION_SECONDS
    ) as connection:
        waits = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)
        assert waits == SECONDS * 1000
