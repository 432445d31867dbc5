"""Where an answer ended, as a text: with it the same question gets what comes after. Pure.

It names a place by time and key, not by a number of rows, so it holds while rows are written. It
is no secret: who makes one up gets no other rows than those that the question is about.
"""

import hashlib
from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Iterable, Mapping
from datetime import datetime
from typing import Annotated, Any
from urllib.parse import urlencode

from fastapi import Query, Request
from pydantic import AwareDatetime, BaseModel, ConfigDict

from millrace_api.kinds import Kind, parsed
from millrace_api.ranges import EARLIEST, LATEST, BadParameter

CURSOR = "cursor"

CursorText = Annotated[
    str | None, Query(alias=CURSOR, description="`next` of the answer before, to go on from there.")
]


class Cursor(BaseModel):
    """After which row of which question: its time, its partition where it has one, and its key."""

    model_config = ConfigDict(extra="forbid", strict=True)

    about: str
    at: AwareDatetime
    bucket: int = 0
    key: list[str]

    @classmethod
    def text(cls, question: Any, at: datetime, key: Iterable[str], bucket: int = 0) -> str:
        cursor = cls(about=_digest(question), at=at, bucket=bucket, key=[*key])
        return urlsafe_b64encode(cursor.model_dump_json().encode()).decode()

    @classmethod
    def parse(cls, text: str, question: Any) -> "Cursor":
        """Raises BadParameter for what no answer to this question had."""
        try:
            cursor = cls.model_validate_json(urlsafe_b64decode(text))
        except ValueError:
            raise unknown() from None
        if cursor.about != _digest(question):
            raise BadParameter(CURSOR, "belongs to another question; ask this one without it")
        if not EARLIEST <= cursor.at <= LATEST:
            raise unknown()
        return cursor

    def key_of(self, columns: Mapping[str, Kind]) -> tuple[Any, ...]:
        """The key's values. Raises BadParameter where they are none of these columns."""
        if len(self.key) != len(columns):
            raise unknown()
        try:
            return tuple(map(parsed, columns, columns.values(), self.key))
        except BadParameter:
            raise unknown() from None


def unknown() -> BadParameter:
    return BadParameter(CURSOR, "is none that an answer had as `next`; ask without it")


def _digest(question: Any) -> str:
    return hashlib.sha256(repr(question).encode(errors="replace")).hexdigest()[:16]


def link(request: Request, cursor: str) -> str:
    """A Link header's value: the same question, from there on."""
    asked = {**request.query_params, CURSOR: cursor}
    return f'<?{urlencode(asked)}>; rel="next"'
