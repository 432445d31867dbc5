"""One Kafka broker on loopback, of the very tarball that hosts install; gone with its context."""

import os
import socket
import subprocess
import tarfile
import tempfile
import uuid
from base64 import urlsafe_b64encode
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from millrace.cluster import kafka
from millrace.common.errors import OperatorError
from millrace.common.paths import ARTIFACTS, CACHE
from millrace.common.waiting import wait_until
from millrace.setup.artifacts import read_manifest

HEAP = "-Xms512m -Xmx512m -XX:+UseSerialGC"
START_SECONDS = 240.0
END_SECONDS = 20.0
FETCH_TIMEOUT_MS = 180_000
PROPERTIES = """process.roles=broker,controller
node.id=1
controller.quorum.voters=1@{controller}
listeners=PLAINTEXT://{client},CONTROLLER://{controller}
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT
log.dirs={folder}/logs
auto.create.topics.enable=false
offsets.topic.replication.factor=1
offsets.topic.num.partitions=2
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
transaction.state.log.num.partitions=2
group.initial.rebalance.delay.ms=0
"""


@dataclass(frozen=True)
class Broker:
    """``address`` is host:port, ``home`` is Kafka's distribution with its tools."""

    address: str
    home: Path

    def create(self, topic: str, partitions: int) -> None:
        client = kafka.admin({"bootstrap.servers": self.address})
        [made] = client.create_topics([kafka.NewTopic(topic, partitions, 1)]).values()
        made.result(START_SECONDS)

    def fetched(self, topic: str, count: int, java: str) -> dict[str, float]:
        """What kafka-consumer-perf-test says of itself, which does nothing with what it reads.

        Raises OperatorError when it fails.
        """
        tool = [str(self.home / "bin/kafka-consumer-perf-test"), "--topic", topic]
        tool += ["--bootstrap-server", self.address, "--num-records", str(count)]
        done = subprocess.run(
            [*tool, "--timeout", str(FETCH_TIMEOUT_MS)],
            env=os.environ | {"JAVA_OPTS": java},
            capture_output=True,
            text=True,
            check=False,
        )
        lines = [line.split(",") for line in done.stdout.splitlines() if "," in line]
        if done.returncode or len(lines) < 2:
            raise OperatorError(f"kafka-consumer-perf-test failed: {done.stderr[-500:]}")
        pairs = zip(lines[0], lines[-1], strict=False)
        return {name.strip(): float(value) for name, value in pairs if "time" not in name}


@contextmanager
def broker() -> Iterator[Broker]:
    """Raises OperatorError when it doesn't start."""
    home = distribution()
    with tempfile.TemporaryDirectory(prefix="millrace-bench-kafka-") as name:
        folder = Path(name)
        client, controller = (f"127.0.0.1:{port}" for port in free_ports(2))
        settings = folder / "server.properties"
        settings.write_text(PROPERTIES.format(client=client, controller=controller, folder=folder))
        identity = urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        tool = [str(home / "bin/kafka-storage"), "format"]
        tool += [f"--cluster-id={identity}", "-c", str(settings)]  # which may begin with a dash
        subprocess.run(tool, check=True, stdout=subprocess.DEVNULL)
        log = folder / "server.log"
        with (
            log.open("wb") as out,
            subprocess.Popen(
                [home / "bin/kafka-server", settings],
                env=os.environ | {"JAVA_OPTS": HEAP},
                stdout=out,
                stderr=subprocess.STDOUT,
            ) as process,
        ):
            try:
                if not wait_until(lambda: answers(client), START_SECONDS):
                    raise OperatorError(
                        f"the bench's broker doesn't start: {log.read_text()[-500:]}"
                    )
                yield Broker(client, home)
            finally:
                end(process)


def end(process: "subprocess.Popen[Any]") -> None:
    """In order, or else at once."""
    process.terminate()
    try:
        process.wait(END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()


def distribution() -> Path:
    """Unpacked once for each version."""
    found = read_manifest()["kafka"]
    home = CACHE / f"kafka-{found['version']}"
    if not home.exists():
        partial = CACHE / f".kafka-{os.getpid()}"
        with tarfile.open(ARTIFACTS / found["file"]) as tar:
            tar.extractall(partial)  # our own; Debian 12's Python knows no filters
        partial.rename(home)
    return home


def answers(address: str) -> bool:
    host, _, port = address.rpartition(":")
    with socket.socket() as tried:
        tried.settimeout(1.0)
        return tried.connect_ex((host, int(port))) == 0


def free_ports(count: int) -> list[int]:
    sockets = [socket.create_server(("127.0.0.1", 0)) for _ in range(count)]
    ports = [each.getsockname()[1] for each in sockets]
    for each in sockets:
        each.close()
    return ports
