"""What one service says of itself, asked at its own port.

By the standard library alone: `millrace status` asks some twenty of them at once, and importing
httpx and Redis' client would cost more of the operator's processor time than all answers do.

Every question raises `BadAnswer` when the service answers that it doesn't serve, TimeoutError when
it doesn't answer in time, and OSError when nothing listens or no way leads there.
"""

import json
import socket
from dataclasses import dataclass
from http.client import HTTPConnection, HTTPException, HTTPSConnection
from typing import Any, Literal

from millrace.cluster.doors import Credentials
from millrace.plan import Endpoint

ANSWER_SECONDS = 4.0  # a frozen service accepts the call and never answers
LONGEST_REASON = 200


class BadAnswer(Exception):
    """The service answered, and not what a healthy one answers."""


@dataclass(frozen=True)
class Redis:
    """A server of Redis. ``is_linked``: a replica has its master."""

    role: Literal["master", "replica"]
    is_linked: bool = True


@dataclass(frozen=True)
class NameNode:
    """``role`` is active or standby; what it knows of the DataNodes and their blocks."""

    role: str
    live_datanodes: int
    missing_blocks: int


@dataclass(frozen=True)
class Application:
    """One that YARN runs."""

    id: str
    name: str
    state: str
    elapsed_seconds: float


@dataclass(frozen=True)
class ResourceManager:
    """``role`` is active or standby; only the active one has applications."""

    role: str
    applications: tuple[Application, ...] = ()


def zookeeper_mode(at: Endpoint, seconds: float = ANSWER_SECONDS) -> str:
    """``leader``, ``follower``, …; a server without a quorum answers that it doesn't serve."""
    with socket.create_connection(at, seconds) as link:
        link.sendall(b"srvr")
        text = b"".join(iter(lambda: link.recv(4096), b"")).decode()
    modes = [line for line in text.splitlines() if line.startswith("Mode: ")]
    if not modes:
        raise BadAnswer(_short(text) or "it closed the connection")
    return modes[0].removeprefix("Mode: ")


def redis(at: Endpoint, seconds: float = ANSWER_SECONDS) -> Redis:
    """The server's role, by its own word: one that is cut off may still think that it is master."""
    lines = _redis_answer(at, "INFO replication", seconds).splitlines()
    info = dict(line.split(":", 1) for line in lines if ":" in line)
    if info["role"] == "master":
        return Redis("master")
    return Redis("replica", info.get("master_link_status") == "up")


def sees_quorum(at: Endpoint, master: str, seconds: float = ANSWER_SECONDS) -> bool:
    """Returns whether a Sentinel sees enough others to promote a replica."""
    try:
        return _redis_answer(at, f"SENTINEL CKQUORUM {master}", seconds).startswith("OK")
    except BadAnswer as answer:
        if "NOQUORUM" in str(answer):
            return False
        raise


def namenode(at: Endpoint, seconds: float = ANSWER_SECONDS) -> NameNode:
    role = _bean(at, "Hadoop:service=NameNode,name=NameNodeStatus", seconds)["State"]
    blocks = _bean(at, "Hadoop:service=NameNode,name=FSNamesystem", seconds)
    return NameNode(role, blocks["NumLiveDataNodes"], blocks["MissingBlocks"])


def resourcemanager(at: Endpoint, seconds: float = ANSWER_SECONDS) -> ResourceManager:
    role = get_json(at, "/ws/v1/cluster/info", seconds)["clusterInfo"]["haState"].lower()
    if role != "active":
        return ResourceManager(role)
    found = get_json(at, "/ws/v1/cluster/apps?states=ACCEPTED,RUNNING", seconds)["apps"] or {}
    return ResourceManager(
        role,
        tuple(
            Application(app["id"], app["name"], app["state"], app["elapsedTime"] / 1000)
            for app in found.get("app", [])
        ),
    )


def is_ready(
    at: Endpoint, credentials: Credentials | None = None, seconds: float = ANSWER_SECONDS
) -> bool:
    """Returns whether the API or a collector says so of itself; else its reason is raised."""
    return bool(get_json(at, "/readyz", seconds, credentials))


def get_json(
    at: Endpoint,
    path: str,
    seconds: float = ANSWER_SECONDS,
    credentials: Credentials | None = None,
) -> Any:
    """Returns what a service has at a path. ``seconds`` bounds each step: connection, read."""
    link = HTTPConnection(at.host, at.port, timeout=seconds)
    if credentials:
        link = HTTPSConnection(at.host, at.port, timeout=seconds, context=credentials.context)
    try:
        link.request("GET", path, headers=credentials.headers if credentials else {})
        answer = link.getresponse()
        content = answer.read()
    except HTTPException as error:
        raise BadAnswer(f"no HTTP: {type(error).__name__} {error}".strip()) from None
    finally:
        link.close()
    if answer.status != 200:
        raise BadAnswer(_short(f"{answer.status} {content.decode(errors='replace')}"))
    try:
        return json.loads(content)
    except ValueError:
        raise BadAnswer(f"no JSON at {path}") from None


def _bean(at: Endpoint, name: str, seconds: float) -> dict[str, Any]:
    beans = get_json(at, f"/jmx?qry={name}", seconds)["beans"]
    if not beans:
        raise BadAnswer(f"it has no {name} yet")
    bean: dict[str, Any] = beans[0]
    return bean


def _redis_answer(at: Endpoint, command: str, seconds: float) -> str:
    """A command's answer, which is a text or a refusal: ``$<bytes>``, ``+<text>``, ``-<refusal>``.

    https://redis.io/docs/latest/develop/reference/protocol-spec/
    """
    with socket.create_connection(at, seconds) as link, link.makefile("rwb") as stream:
        stream.write(f"{command}\r\n".encode())
        stream.flush()
        head = stream.readline().decode(errors="replace").strip()
        if head.startswith("$"):
            return stream.read(int(head[1:])).decode(errors="replace")
    if head.startswith("+"):
        return head[1:]
    raise BadAnswer(_short(head.removeprefix("-")) or "it closed the connection")


def _short(text: str) -> str:
    """Returns one line of a text."""
    return " ".join(text.split())[:LONGEST_REASON]
