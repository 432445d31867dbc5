"""Finds the records that are too large for a small heap: by a Kafka client in a JVM of its own.

The broker counts compressed bytes, and no client can tell a record's size before it has
decompressed it. So a JVM that holds nothing else reads range after range, and where its heap is too
small for a single record, that record stands. It goes on behind it. librdkafka is no help: it
sticks to such a record.
"""

import logging
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from math import inf
from pathlib import Path
from typing import Any, Protocol
from urllib.parse import unquote, urlparse

from py4j import protocol
from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway
from py4j.protocol import Py4JError, Py4JJavaError
from pyspark.sql import SparkSession

from millrace_jobs.inputs.skipped import SkippedRange, joined
from millrace_jobs.spark_internals import jvm

log = logging.getLogger(__name__)

HEAP = "64m"
MOST_RECORDS = 1000  # beyond, it is another kind of trouble, and somebody should look
AT_ONCE = 200  # records of a poll, until one fails
POLL_MS = 500
SECONDS = 240.0
AHEAD_SECONDS = 60.0
OUT_OF_MEMORY = "java.lang.OutOfMemoryError"
# A class of each jar that the client needs.
NEEDED = (
    "py4j.GatewayServer",
    "org.apache.kafka.clients.consumer.KafkaConsumer",
    "org.slf4j.LoggerFactory",
    "com.github.luben.zstd.Zstd",
    "org.xerial.snappy.Snappy",
    "net.jpountz.lz4.LZ4Factory",
)


class ScanFailed(Exception):
    """What is too large couldn't be found; says why."""


class TooLarge(Exception):
    """A poll needed more than the heap."""


class Partition(Protocol):
    """One partition as it is read from a position on; a position that was polled past is gone."""

    def seek(self, offset: int, at_once: int) -> None:
        """Go there, and poll so many records at once from now on."""

    def poll(self) -> int:
        """Read on, and return the position after it. Raises TooLarge."""

    def start(self) -> int:
        """The first offset that the partition has."""

    def end(self) -> int:
        """Where committed records end."""


@dataclass
class Found:
    """``offsets`` that can't be read, and why that may not be all of them."""

    offsets: list[int]
    trouble: str = ""


def find(partition: Partition, start: int, end: float, until: Callable[[], bool]) -> Found:
    """The offsets from ``start`` up to ``end`` that can't be read, each tried alone.

    A record in the same batch of its producer's is found, too: whoever reads it has to decompress
    what stands before it.

    Args:
        end: infinite for all that the partition has.
        until: whether there is time left.
    """
    found: list[int] = []
    position, end = max(start, partition.start()), min(end, partition.end())
    alone_until = position  # up to where records are read one by one
    at_once = AT_ONCE
    partition.seek(position, at_once)
    while position < end:
        if not until():
            return Found(found, f"offset {position} of {end} was reached when time was up")
        if len(found) > MOST_RECORDS:
            return Found(found, f"more than {MOST_RECORDS} records are too large")
        try:
            position = max(position, partition.poll())
        except TooLarge:
            if at_once > 1:
                at_once, alone_until = 1, position + AT_ONCE
            else:
                found.append(position)
                position += 1
            partition.seek(position, at_once)
            continue
        if at_once == 1 and position >= alone_until:
            at_once = AT_ONCE
            partition.seek(position, at_once)
    return Found([offset for offset in found if offset < end])


@dataclass
class Scan:
    """Reads as the jobs do; ``client`` are settings of Java's client."""

    spark: SparkSession
    client: Mapping[str, Any]
    seconds: float = SECONDS

    def too_large(self, ranges: Sequence[SkippedRange]) -> list[SkippedRange]:
        """What can't be read of these ranges.

        Where there is some there may be more: then what Kafka has behind the ranges is looked at,
        too, for as long as that is worth the wait. A job that met each one by itself would end some
        executors by each.

        Raises ScanFailed.
        """
        deadline = time.monotonic() + self.seconds
        large: list[SkippedRange] = []
        with self._gateway() as gateway:
            for one in ranges:
                found = _read(
                    KafkaPartition(gateway, self.client, one), one.start, one.end, deadline
                )
                if found.trouble:
                    raise ScanFailed(f"{one}: {found.trouble}")
                large += _ranges(one, found)
            large += self._behind(gateway, ranges) if large else []
        log.info("scanned %s: too large: %s", ranges, large)
        return joined(large)

    def behind(self, ranges: Sequence[SkippedRange]) -> list[SkippedRange]:
        """What can't be read of all that Kafka has behind these ranges, as far as it is found in
        time. Raises ScanFailed."""
        with self._gateway() as gateway:
            large = joined(self._behind(gateway, ranges))
        log.info("scanned what is behind %s: too large: %s", ranges, large)
        return large

    def _behind(
        self, gateway: JavaGateway, ranges: Sequence[SkippedRange]
    ) -> Iterator[SkippedRange]:
        deadline = time.monotonic() + AHEAD_SECONDS
        for one in ranges:
            found = _read(KafkaPartition(gateway, self.client, one), one.end, inf, deadline)
            yield from _ranges(one, found)

    @contextmanager
    def _gateway(self) -> Iterator[JavaGateway]:
        driver = jvm(self.spark.sparkContext).java.lang
        home = driver.System.getProperty("java.home")
        jars = [self._jar_of(name) for name in NEEDED]
        port, token, process = launch_gateway(
            jarpath=jars[0],
            classpath=":".join(jars[1:]),
            javaopts=[f"-Xmx{HEAP}", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1"],
            java_path=f"{home}/bin/java",
            die_on_exit=True,  # with this process, should it be killed
            enable_auth=True,
            return_proc=True,
        )
        gateway = JavaGateway(gateway_parameters=GatewayParameters(port=port, auth_token=token))
        try:
            yield gateway
        finally:
            gateway.shutdown()
            process.kill()  # it has nothing to put in order
            process.wait()

    def _jar_of(self, name: str) -> str:
        """The file that the driver has a class from, wherever its host keeps it."""
        java = jvm(self.spark.sparkContext)
        loader = java.java.lang.Thread.currentThread().getContextClassLoader()
        found = java.java.lang.Class.forName(name, False, loader)
        location = found.getProtectionDomain().getCodeSource().getLocation()
        return str(Path(unquote(urlparse(location.toString()).path)))


def _read(partition: "KafkaPartition", start: int, end: float, deadline: float) -> Found:
    """Raises ScanFailed where Kafka doesn't answer."""
    try:
        return find(partition, start, end, lambda: time.monotonic() < deadline)
    except Py4JError as error:
        raise ScanFailed(str(error).splitlines()[-1]) from error
    finally:
        partition.close()


def _ranges(one: SkippedRange, found: Found) -> list[SkippedRange]:
    return [SkippedRange(one.topic, one.partition, offset, offset + 1) for offset in found.offsets]


class KafkaPartition:
    """A partition, by a consumer of its own for each way of polling: what one that ran out of
    memory holds is gone with it."""

    def __init__(self, gateway: JavaGateway, client: Mapping[str, Any], one: SkippedRange) -> None:
        self._java = gateway.jvm
        self._client = client
        self._place = self._java.org.apache.kafka.common.TopicPartition(one.topic, one.partition)
        self._places = self._java.java.util.List.of(self._place)
        self._wait = self._java.java.time.Duration.ofMillis(POLL_MS)
        self._consumer = self._connect(AT_ONCE)

    def seek(self, offset: int, at_once: int) -> None:
        self.close()
        self._consumer = self._connect(at_once)
        self._consumer.assign(self._places)
        self._consumer.seek(self._place, offset)

    def poll(self) -> int:
        try:
            _call(self._consumer.poll, self._wait)
        except Py4JJavaError as error:
            if _runs_out_of_memory(error):
                raise TooLarge from None
            raise
        return int(_call(self._consumer.position, self._place))

    def start(self) -> int:
        return int(_call(self._consumer.beginningOffsets, self._places)[self._place])

    def end(self) -> int:
        return int(_call(self._consumer.endOffsets, self._places)[self._place])

    def close(self) -> None:
        try:
            _call(self._consumer.close, self._java.java.time.Duration.ZERO)
        except Py4JError as error:
            log.debug("closing a consumer: %s", error)

    def _connect(self, at_once: int) -> Any:
        bytes_of = "org.apache.kafka.common.serialization.ByteArrayDeserializer"
        settings = {
            **self._client,
            "enable.auto.commit": "false",
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "key.deserializer": bytes_of,
            "value.deserializer": bytes_of,
            "max.poll.records": at_once,
            "receive.buffer.bytes": 65536,
        }
        properties = self._java.java.util.Properties()
        for name, value in settings.items():
            properties.setProperty(name, str(value))
        return self._java.org.apache.kafka.clients.consumer.KafkaConsumer(properties)


def _call(method: Any, *arguments: Any) -> Any:
    """Call a method of the small JVM; its errors are Py4JJavaError.

    As py4j itself does. PySpark has put its own reader of answers into py4j, which looks for
    any error's object in Spark's JVM.
    """
    parts, temporary = method._build_args(*arguments)
    command = protocol.CALL_COMMAND_NAME + method.command_header + parts
    client = method.gateway_client
    answer = client.send_command(command + protocol.END_COMMAND_PART)
    for one in temporary:
        one._detach()
    return protocol.get_return_value(answer, client, method.target_id, method.name)


def _runs_out_of_memory(error: Py4JJavaError) -> bool:
    cause = error.java_exception
    while cause is not None:
        if cause.getClass().getName() == OUT_OF_MEMORY:
            return True
        cause = cause.getCause()
    return False
