"""Connections to ZooKeeper that leave a lost server while the session still runs.

kazoo notices a server that fell silent after up to four sixths of the session's time-out, and gives
the TCP connection to the next one a whole session, even if that one is lost as well. A driver whose
server was lost with its host would lose its lease so, and with it everything it had warmed up.
"""

import socket
from typing import Any

from kazoo.handlers.threading import SequentialThreadingHandler


class FastReconnectHandler(SequentialThreadingHandler):
    """Gives up what a server doesn't acknowledge, a new connection or a packet, in ``seconds``.

    The system's kernel acknowledges packets, so this is about hosts and networks; a server that is
    only slow, or frozen, is left to kazoo. Source of TCP_USER_TIMEOUT: RFC 5482, tcp(7).
    """

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self._seconds = seconds

    def create_connection(self, *args: Any, **kwargs: Any) -> socket.socket:
        kwargs["timeout"] = min(kwargs["timeout"], self._seconds)
        connection: socket.socket = super().create_connection(*args, **kwargs)
        milliseconds = round(self._seconds * 1000)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_USER_TIMEOUT, milliseconds)
        return connection
