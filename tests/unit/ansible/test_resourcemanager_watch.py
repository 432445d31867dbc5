"""What kills a ResourceManager that hangs, against servers that say of themselves what they are."""

import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from millrace.common.paths import REPO
from tests.waiting import PATIENCE_SECONDS, soon

SCRIPT = REPO / "ansible/roles/resourcemanager/files/resourcemanager-watch"
NOBODY = "127.0.0.1:1"


class ResourceManager(HTTPServer):
    """Says each state once, and the last one from then on."""

    def __init__(self, *states: str) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.to_say = list(states)
        self.asked = 0

    @property
    def address(self) -> str:
        return f"127.0.0.1:{self.server_port}"


class Handler(BaseHTTPRequestHandler):
    server: ResourceManager

    def do_GET(self) -> None:
        self.server.asked += 1
        to_say = self.server.to_say
        state = to_say.pop(0) if len(to_say) > 1 else to_say[0]
        self.send_response(200)
        self.end_headers()
        self.wfile.write(f'{{"clusterInfo":{{"id":1,"haState":"{state}"}}}}'.encode())

    def log_message(self, *_: object) -> None: ...


@contextmanager
def resourcemanager(*states: str) -> Iterator[ResourceManager]:
    server = ResourceManager(*states)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


@contextmanager
def watched(tmp_path: Path, *addresses: str) -> Iterator[subprocess.Popen[bytes]]:
    """This host's process, watched each second with a patience of two."""
    mine = subprocess.Popen(["sleep", "3600"])
    systemctl = tmp_path / "systemctl"
    systemctl.write_text(f"#!/bin/sh\necho {mine.pid}\n")
    systemctl.chmod(0o755)
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    watch = subprocess.Popen([SCRIPT, "1", "2", *addresses], env=os.environ | {"PATH": path})
    try:
        yield mine
    finally:
        for process in (watch, mine):
            process.kill()
            process.wait()


def test_it_is_killed_when_none_is_active(tmp_path):
    with resourcemanager("STANDBY") as one, watched(tmp_path, one.address, NOBODY) as mine:
        assert mine.wait(PATIENCE_SECONDS) == -signal.SIGKILL


@pytest.mark.parametrize(
    "states",
    [("ACTIVE",), ("STANDBY", "ACTIVE") * 5],
    ids=["active", "active again in time"],
)
def test_it_is_left_alone_while_one_is(tmp_path, states):
    with resourcemanager(*states) as one, watched(tmp_path, NOBODY, one.address) as mine:
        soon(lambda: one.asked > 5, "it has looked often")
        assert mine.poll() is None
