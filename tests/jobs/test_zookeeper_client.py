"""A driver's connection to ZooKeeper gives up a lost server within a share of its session."""

import socket
from collections.abc import Iterator
from contextlib import ExitStack

import pytest
from millrace_jobs.leadership.zookeeper_client import FastReconnectHandler

SESSION_SECONDS = 3600  # for which nobody waits: the kernel gives up before, in other words
SECONDS = 0.2


@pytest.fixture
def listener() -> Iterator[socket.socket]:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        server.listen(0)
        yield server


def test_a_server_that_accepts_no_connection_is_left(listener: socket.socket) -> None:
    with ExitStack() as held:
        fill(listener, held)
        with pytest.raises(OSError, match=r"^timed out$"):
            FastReconnectHandler(SECONDS).create_connection(
                address=listener.getsockname(), timeout=SESSION_SECONDS
            )


def fill(listener: socket.socket, held: ExitStack) -> None:
    """Take more than all places in the listener's queue: a lost host's port answers nobody."""
    for _ in range(10):
        client = held.enter_context(socket.socket())
        client.setblocking(False)
        client.connect_ex(listener.getsockname())


def test_a_server_that_acknowledges_nothing_any_more_is_left(listener: socket.socket) -> None:
    handler = FastReconnectHandler(SECONDS)
    with handler.create_connection(
        address=listener.getsockname(), timeout=SESSION_SECONDS
    ) as connection:
        waits = connection.getsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT)
        assert waits == SECONDS * 1000
