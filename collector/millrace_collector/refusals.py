"""Why a request isn't acknowledged. Of one that is refused, nothing was sent to Kafka, but where
``Undelivered`` says so."""

from typing import ClassVar


class Refusal(Exception):
    """``record`` is the number of the record at fault, from 1."""

    status: ClassVar[int]
    title: ClassVar[str]

    def __init__(
        self, detail: str, *, record: int | None = None, retry_after_seconds: float = 0
    ) -> None:
        super().__init__(detail)
        self.record = record
        self.retry_after_seconds = retry_after_seconds


class BadBody(Refusal):
    """The body can't be taken apart into records."""

    status, title = 400, "Bad body"


class UnknownKey(Refusal):
    status, title = 401, "No such key"


class NoSuchStream(Refusal):
    status, title = 404, "No such stream"


class TooSlow(Refusal):
    """The body didn't come in time."""

    status, title = 408, "Body too slow"


class TooLarge(Refusal):
    status, title = 413, "Too large"


class OtherFormat(Refusal):
    status, title = 415, "Unknown format"


class BadRecord(Refusal):
    status, title = 422, "Bad record"


class TooMany(Refusal):
    status, title = 429, "Too many events"


class Undelivered(Refusal):
    """Kafka didn't acknowledge all of the records in time; some of them it may have."""

    status, title = 503, "Kafka can't be reached"
