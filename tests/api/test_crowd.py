"""The crowd that drills and benchmarks send: one file, without any package beside it."""

import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from millrace.common.paths import REPO

CROWD = REPO / "insight-api" / "bench" / "crowd.py"


class Api(BaseHTTPRequestHandler):
    """Refuses long ranges, is slow on demand, and counts who asks."""

    protocol_version = "HTTP/1.1"
    pause_seconds = 0.0
    failing = False
    clients: set[str]
    keys: set[str | None]

    def do_GET(self) -> None:
        self.clients.add(self.client_address[0])
        self.keys.add(self.headers["Authorization"])
        time.sleep(self.pause_seconds)
        if self.failing:
            self.send_response(500)
        elif "/total" in self.path:
            self.send_response(503)
            self.send_header("Retry-After", "1")
        else:
            self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


@pytest.fixture
def api() -> Iterator[tuple[str, type[Api]]]:
    class Mine(Api):
        pass

    Mine.clients, Mine.keys = set(), set()
    server = ThreadingHTTPServer(("127.0.0.1", 0), Mine)
    server.daemon_threads = True
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", Mine
    server.shutdown()
    server.server_close()


def storm(url: str, *options: str) -> subprocess.CompletedProcess[str]:
    """Without this environment's packages, as on a host."""
    command = [sys.executable, "-I", "-S", str(CROWD), url, "--seconds", "5", "--viewers", "2"]
    return subprocess.run([*command, *options], capture_output=True, text=True, timeout=300)


def test_a_service_that_refuses_with_retry_after_weathers_it(api):
    url, seen = api
    roles = [word for role in ("viewers", "reader", "year") for word in ("--only", role)]
    done = storm(url, *roles, "--years", "3")
    assert done.returncode == 0, done.stdout + done.stderr
    assert "503" in done.stdout
    assert len(seen.clients) == 2 + 1 + 3  # each with an address of its own


def test_a_reader_who_waits_is_a_failure(api):
    url, seen = api
    seen.pause_seconds = 0.05
    only_reader = ("--only", "reader")
    assert storm(url, *only_reader).returncode == 0
    assert storm(url, *only_reader, "--reader-p99-ms", "20").returncode == 1


def test_a_bare_5xx_is_a_failure(api):
    url, seen = api
    seen.failing = True
    assert storm(url, "--only", "reader").returncode == 1


def test_a_key_comes_from_a_file(api, tmp_path):
    url, seen = api
    file = tmp_path / "reader.key"
    file.write_text("of-a-reader\n")
    assert storm(url, "--only", "reader", "--key-file", str(file)).returncode == 0
    assert seen.keys == {"Bearer of-a-reader"}
