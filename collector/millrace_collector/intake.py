"""A request's way to Kafka: received, taken apart, checked, handed over. What a step has made is
charged, to its sender and to the memory, before the next one begins; and none holds up the others
for longer than a part takes."""

import asyncio
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import ParamSpec, TypeVar

from starlette.requests import ClientDisconnect

from millrace_collector import bodies, content_encoding
from millrace_collector.bodies import Format
from millrace_collector.cloud_events import Unwrap, naming
from millrace_collector.content_encoding import Content
from millrace_collector.delivery import Delivery
from millrace_collector.fates import Failure, Fate, Kind
from millrace_collector.limits import Buffer, Sender, Share
from millrace_collector.records import Checker
from millrace_collector.refusals import BadRecord, TooLarge, TooSlow
from millrace_collector.settings import Settings

P = ParamSpec("P")
T = TypeVar("T")

# What a record costs beside its bytes while it waits: objects of Python and of librdkafka.
RECORD_OVERHEAD_BYTES = 512
# What is checked before others have their turn.
CHECKED_AT_ONCE = 200
CHECKED_BYTES = 131_072

Keyed = tuple[bytes, bytes]


@dataclass
class Request:
    """What is left of one in HTTP: its headers, by names in small letters, and its body."""

    headers: Mapping[str, str]
    chunks: AsyncIterator[bytes]

    @property
    def announced(self) -> int:
        """How large the body is to be; 0 where that isn't said."""
        return int(self.headers.get("content-length", "0"))

    @property
    def encoding(self) -> str:
        return self.headers.get("content-encoding", "").strip().lower() or content_encoding.NONE


@dataclass
class Bill:
    """What one request takes: of its sender's allowance of bytes, and of the buffer."""

    sender: Sender
    share: Share
    charged: int = field(default=0, init=False)

    def charge(self, size: int) -> None:
        """Raises TooMany, TooLarge."""
        self.sender.bytes.charge(size, again=2 * (self.charged + size))
        self.charged += size

    def hold(self, size: int) -> None:
        """Charges for bytes that are kept. Raises BufferFull, TooMany, TooLarge."""
        self.charge(size)
        self.share.take(size)


class Intake:
    def __init__(self, settings: Settings, delivery: Delivery) -> None:
        self._settings = settings
        self._delivery = delivery
        streams = settings.streams.items()
        self._checkers = {name: Checker(stream) for name, stream in streams}
        self._names = {name: naming(stream.deduplicate_by) for name, stream in streams}
        self._pool = ThreadPoolExecutor(settings.threads)
        self.buffer = Buffer(settings.buffer_bytes)

    async def take(self, stream: str, sender: Sender, request: Request) -> list[Fate]:
        """What became of each of the request's records.

        Raises Refusal; then none of them was given to Kafka.
        """
        form = bodies.format_of(request.headers, self._names[stream])
        content_encoding.check(request.encoding)
        sender.events.check(1)
        self._check_size(request.announced)
        sender.bytes.check(request.announced)
        with self.buffer.share() as share:
            bill = Bill(sender, share)
            body = await self._received(request.chunks, bill)
            async with sender.turn:
                records = await self._records(form, body, request.encoding, bill)
                del body
                sender.events.charge(len(records))
                examined = await self._examined(self._checkers[stream], form.unwrap, records)
            good = [one for one in examined if not isinstance(one, Failure)]
            topic = self._settings.streams[stream].topic
            told = iter(await self._delivery.deliver(topic, good))
        return [one if isinstance(one, Failure) else next(told) for one in examined]

    def close(self) -> None:
        self._pool.shutdown()

    def _check_size(self, size: int) -> None:
        if size > (most := self._settings.request_bytes):
            raise TooLarge(f"The body has more than {most:,} bytes; send fewer records.")

    async def _received(self, chunks: AsyncIterator[bytes], bill: Bill) -> bytes:
        received: list[bytes] = []
        seconds = self._settings.receive_seconds
        try:
            async with asyncio.timeout(seconds):
                async for chunk in chunks:
                    self._check_size(bill.charged + len(chunk))
                    bill.hold(len(chunk))
                    received.append(chunk)
        except (TimeoutError, ClientDisconnect):
            raise TooSlow(f"The body didn't come within {seconds:g} s.") from None
        return b"".join(received)

    async def _records(self, form: Format, body: bytes, encoding: str, bill: Bill) -> list[bytes]:
        content = await self._decompressed(body, encoding, bill)
        records: list[bytes] = []
        at, end = 0, len(content)
        while True:
            part, at = await self._off_loop(form.split, content, at)
            bill.share.take(len(part) * RECORD_OVERHEAD_BYTES + sum(map(len, part)))
            records += part
            if at >= end:
                return records

    async def _decompressed(self, body: bytes, encoding: str, bill: Bill) -> bytes:
        if encoding == content_encoding.NONE:
            return body
        content = Content(body, encoding)
        parts: list[bytes] = []
        size = members = 0
        while not content.is_read:
            part = await self._off_loop(content.read)
            # Of a member the beginning costs, as an event does, even if it is empty.
            bill.charge((content.members - members) * self._settings.event_bytes)
            bill.hold(len(part))
            size, members = size + len(part), content.members
            self._check_size(size)
            parts.append(part)
        bill.share.give_back(len(body))
        return b"".join(parts)

    async def _examined(
        self, checker: Checker, unwrap: Unwrap, records: Sequence[bytes]
    ) -> list[Keyed | Failure]:
        now = datetime.now(UTC)
        examined: list[Keyed | Failure] = []
        for some in _portions(records):
            examined += await self._off_loop(_examine, checker, unwrap, some, now)
        return examined

    async def _off_loop(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """On one of a few threads, in the order in which it is asked for."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._pool, lambda: work(*args, **kwargs))


def _portions(records: Sequence[bytes]) -> Iterator[Sequence[bytes]]:
    start = size = 0
    for number, record in enumerate(records):
        if number - start >= CHECKED_AT_ONCE or size >= CHECKED_BYTES:
            yield records[start:number]
            start, size = number, 0
        size += len(record)
    yield records[start:]


def _examine(
    checker: Checker, unwrap: Unwrap, records: Sequence[bytes], now: datetime
) -> list[Keyed | Failure]:
    examined: list[Keyed | Failure] = []
    for record in records:
        try:
            value = unwrap(record)
            examined.append((checker.key_of(value, now), value))
        except BadRecord as error:
            examined.append(Failure(Kind.REFUSED, str(error)))
    return examined
