"""What kills a ResourceManager that hangs, against servers that say of themselves what they are."""

import os
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest

from millrace.common.paths import REPO

SCRIPT = REPO / "ansible/roles/resourcemanager/files/resourcemanager-watch"
NOBODY = "127.0.0.1:1"


@contextmanager
def resourcemanager(*states: str) -> Iterator[str]:
    """Its address; it says each state once, and the last one from then on."""
    to_say = list(states)

    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            state = to_say.pop(0) if len(to_say) > 1 else to_say[0]
            self.send_response(200)
            self.end_headers()
            self.wfile.write(f'{{"clusterInfo":{{"id":1,"haState":"{state}"}}}}'.encode())

        def log_message(self, *_: object) -> None: ...

    server = HTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"127.0.0.1:{server.server_port}"
    server.shutdown()
    server.server_close()


def outlives(tmp_path: Path, seconds: float, *addresses: str) -> bool:
    """Whether this host's process does, watched each second with a patience of two."""
    mine = subprocess.Popen(["sleep", "60"])
    systemctl = tmp_path / "systemctl"
    systemctl.write_text(f"#!/bin/sh\necho {mine.pid}\n")
    systemctl.chmod(0o755)
    path = f"{tmp_path}{os.pathsep}{os.environ['PATH']}"
    watch = subprocess.Popen([SCRIPT, "1", "2", *addresses], env=os.environ | {"PATH": path})
    try:
        mine.wait(seconds)
        return False
    except subprocess.TimeoutExpired:
        return True
    finally:
        for process in (watch, mine):
            process.kill()
            process.wait()


def test_it_is_killed_when_none_is_active(tmp_path):
    with resourcemanager("STANDBY") as one:
        assert not outlives(tmp_path, 20, one, NOBODY)


@pytest.mark.parametrize(
    "states",
    [("ACTIVE",), ("STANDBY", "ACTIVE") * 5],
    ids=["active", "active again in time"],
)
def test_it_is_left_alone_while_one_is(tmp_path, states):
    with resourcemanager(*states) as one:
        assert outlives(tmp_path, 5, NOBODY, one)
