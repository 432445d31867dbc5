"""From a request's body to its records, which stay the bytes that they came as."""

import zlib
from collections.abc import Iterator

import msgspec

from millrace_collector.refusals import BadBody, BadRecord, OtherFormat, TooLarge

LINES = {"application/x-ndjson", "application/ndjson", "application/jsonl", "text/plain"}
JSON = "application/json"
CLOUD_EVENT = "application/cloudevents+json"
CLOUD_EVENTS = "application/cloudevents-batch+json"
FORMATS = ", ".join((JSON, "application/x-ndjson", CLOUD_EVENT, CLOUD_EVENTS))
GZIP_HEADER = 31  # zlib's number for: a gzip header and the largest window


class CloudEvent(msgspec.Struct):
    """What the specification requires of each event; its data are the record."""

    specversion: str
    id: str
    source: str
    type: str
    data: msgspec.Raw


_array = msgspec.json.Decoder(list[msgspec.Raw])
_cloud_event = msgspec.json.Decoder(CloudEvent)


def decompressed(body: bytes, encoding: str, most: int) -> bytes:
    """The body without its Content-Encoding; of more than ``most`` bytes nothing is kept."""
    if encoding in ("", "identity"):
        return body
    if encoding != "gzip":
        raise OtherFormat(f"Content-Encoding is {encoding}; gzip is taken, or none.")
    member = zlib.decompressobj(GZIP_HEADER)
    try:
        content = member.decompress(body, most + 1)
    except zlib.error:
        raise BadBody("The body is not gzip, as Content-Encoding says.") from None
    if len(content) > most:
        raise TooLarge(f"Decompressed, the body has more than {most:,} bytes; send fewer records.")
    if not member.eof or member.unused_data:
        raise BadBody("The body is not one whole member of gzip.")
    return content


def records(body: bytes, content_type: str) -> Iterator[bytes]:
    """The records, in their order. Raises BadBody, OtherFormat, BadRecord."""
    kind = content_type.partition(";")[0].strip().lower()
    if kind in LINES:
        return (line for line in body.split(b"\n") if line and not line.isspace())
    if kind == JSON:
        return iter([body]) if not body.lstrip().startswith(b"[") else map(bytes, _items(body))
    if kind == CLOUD_EVENT:
        return _data([body])
    if kind == CLOUD_EVENTS:
        return _data(_items(body))
    raise OtherFormat(f"Content-Type is {kind or 'missing'}; one of {FORMATS} is taken.")


def _items(body: bytes) -> list[msgspec.Raw]:
    try:
        return _array.decode(body)
    except (msgspec.DecodeError, RecursionError) as error:
        raise BadBody(f"The body is not a JSON array: {error}") from None


def _data(events: list[msgspec.Raw] | list[bytes]) -> Iterator[bytes]:
    for number, event in enumerate(events, 1):
        try:
            yield bytes(_cloud_event.decode(event).data)
        except (msgspec.DecodeError, RecursionError) as error:
            raise BadRecord(f"No CloudEvent with data: {error}", record=number) from None
