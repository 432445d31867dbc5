"""Why a request isn't taken, as a whole, and why a record isn't."""

from typing import ClassVar


class BadRecord(Exception):
    """The message says what is wrong with it, for "record 3: …"."""


class Refusal(Exception):
    """Of a request that is refused, nothing was sent to Kafka."""

    status: ClassVar[int]
    title: ClassVar[str]

    def __init__(self, detail: str, *, retry_after_seconds: float = 0) -> None:
        super().__init__(detail)
        self.retry_after_seconds = retry_after_seconds


class BadBody(Refusal):
    """The body can't be taken apart into records."""

    status, title = 400, "Bad body"


class BadParameter(Refusal):
    status, title = 400, "Bad parameter"


class UnknownKey(Refusal):
    status, title = 401, "No such key"


class OtherStream(Refusal):
    """The key may not write this one."""

    status, title = 403, "Not this stream"


class NoSuchStream(Refusal):
    status, title = 404, "No such stream"


class TooSlow(Refusal):
    """The body didn't come in time."""

    status, title = 408, "Body too slow"


class TooLarge(Refusal):
    """It would never be taken, however long one waits."""

    status, title = 413, "Too large"


class OtherFormat(Refusal):
    status, title = 415, "Unknown format"


class TooMany(Refusal):
    """The key has used up what it may have now."""

    status, title = 429, "Too much of this key"


class KeysUnknown(Refusal):
    """Nobody can be told from anybody yet: it isn't the sender's fault."""

    status, title = 503, "Keys unknown"


class BufferFull(Refusal):
    """What other requests hold leaves no room."""

    status, title = 503, "Buffer full"
