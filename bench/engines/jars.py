"""What the engines need from Maven, locked like a distribution's jars.

python -m bench.engines.jars        # writes the lock anew
"""

import shutil
import tempfile
from dataclasses import replace
from pathlib import Path

from millrace.common.paths import CACHE
from millrace.setup.locks import parse_jar, read_lock, sha256_of, verify, write_lock
from millrace.setup.maven import fetch, resolve

LOCK = Path(__file__).with_name("jars.lock")
KAFKA_STREAMS = "org.apache.kafka:kafka-streams:4.3.1"
FLINK_CONNECTOR = "org.apache.flink:flink-sql-connector-kafka:5.0.0-2.2"
# What it needs besides is for commands that nobody here uses.
REDIS_CLIENT = "redis.clients:jedis:7.5.3"
REDIS_POOL = "org.apache.commons:commons-pool2:2.12.1"
FOLDER = CACHE / "bench-jars"


def jars() -> Path:
    """A folder with exactly the jars of the lock, each verified when it was downloaded."""
    locked = read_lock(LOCK)
    missing = [jar for jar in locked if not (FOLDER / jar.filename).exists()]
    if missing:
        with tempfile.TemporaryDirectory() as scratch:
            fetch(missing, Path(scratch))
            FOLDER.mkdir(parents=True, exist_ok=True)
            for jar in missing:
                verify(jar, Path(scratch) / jar.filename)
                shutil.move(Path(scratch) / jar.filename, FOLDER / jar.filename)
    return FOLDER


def redis_client() -> list[Path]:
    return [jars() / parse_jar(jar).filename for jar in (REDIS_CLIENT, REDIS_POOL)]


def relock() -> None:
    alone = map(parse_jar, (FLINK_CONNECTOR, REDIS_CLIENT, REDIS_POOL))
    found = [*resolve([parse_jar(KAFKA_STREAMS)]), *alone]
    with tempfile.TemporaryDirectory() as scratch:
        fetch(found, Path(scratch))
        write_lock(
            LOCK, [replace(jar, sha256=sha256_of(Path(scratch) / jar.filename)) for jar in found]
        )


if __name__ == "__main__":
    relock()
