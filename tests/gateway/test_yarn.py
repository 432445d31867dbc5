"""The ResourceManager, asked over HTTP: the active one of several is found."""

import json
import threading
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import Any

import pytest
from millrace_gateway.decide import Run
from millrace_gateway.yarn import Unreachable, Yarn

from tests.waiting import PATIENCE_SECONDS


class ResourceManager(BaseHTTPRequestHandler):
    """Answers as its server's ``role`` says."""

    def do_GET(self) -> None:
        self.server.asked.append(self.path)
        if self.server.role == "standby":
            self.send_response(307)
            self.send_header("Location", "http://127.0.0.1:1/elsewhere")
            self.end_headers()
            self.wfile.write(b"This is standby RM.")
            return
        self.send_response(200)
        self.end_headers()
        self.wfile.write(json.dumps(self.server.answer).encode())

    def do_PUT(self) -> None:
        content = self.rfile.read(int(self.headers["Content-Length"]))
        self.server.killed.append((self.path, json.loads(content)))
        self.do_GET()

    def log_message(self, *_: Any) -> None:
        pass


@pytest.fixture
def resourcemanagers():
    servers = []
    for role in ("standby", "active"):
        server = HTTPServer(("127.0.0.1", 0), ResourceManager)
        server.role, server.asked, server.killed, server.answer = role, [], [], {"apps": None}
        threading.Thread(target=server.serve_forever, args=(0.01,), daemon=True).start()
        servers.append(server)
    yield servers
    for server in servers:
        server.shutdown()
        server.server_close()


def yarn(servers: list[HTTPServer]) -> Yarn:
    addresses = ["127.0.0.1:1", *(f"127.0.0.1:{server.server_port}" for server in servers)]
    return Yarn(addresses, "millrace", timeout=PATIENCE_SECONDS)


def app(number: int, started: int) -> dict[str, Any]:
    return {
        "id": f"application_{number}",
        "state": "RUNNING",
        "applicationTags": "millrace:insights,version:v2",
        "startedTime": started,
        "finishedTime": 0,
        "runningContainers": 3,
    }


def test_hosts_are_those_that_can_be_given_containers(resourcemanagers):
    resourcemanagers[1].answer = {"clusterMetrics": {"activeNodes": 2, "lostNodes": 1}}
    assert yarn(resourcemanagers).hosts() == 2


def test_the_active_resourcemanager_is_found_beside_a_dead_one_and_a_standby(resourcemanagers):
    standby, active = resourcemanagers
    active.answer = {"apps": {"app": [app(2, 2000), app(1, 1000)]}}
    client = yarn(resourcemanagers)
    assert client.active("insights") == [
        Run("application_1", "RUNNING", "v2", 1.0, containers=3),
        Run("application_2", "RUNNING", "v2", 2.0, containers=3),
    ]
    client.active("insights")
    assert len(standby.asked) == 1, "it is remembered which one is active"


def test_nothing_runs(resourcemanagers):
    assert yarn(resourcemanagers).active("insights") == []


def test_no_active_resourcemanager_is_not_mistaken_for_nothing_runs(resourcemanagers):
    resourcemanagers[1].role = "standby"
    with pytest.raises(Unreachable, match="no active ResourceManager among"):
        yarn(resourcemanagers).active("insights")


def test_kill(resourcemanagers):
    yarn(resourcemanagers).kill("application_1")
    path, content = resourcemanagers[1].killed[0]
    assert path.startswith("/ws/v1/cluster/apps/application_1/state")
    assert content == {"state": "KILLED"}


def test_whatever_runs_is_told_by_its_id(resourcemanagers):
    resourcemanagers[1].answer = {"apps": {"app": [app(2, 2000) | {"applicationTags": ""}]}}
    assert yarn(resourcemanagers).running() == ["application_2"]
