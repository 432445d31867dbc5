"""What a request is answered: what became of each of its records, or why it isn't taken at all."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any

import msgspec
from starlette.responses import Response

from millrace_collector.fates import Failure, Fate, Kind
from millrace_collector.refusals import Refusal

JSON = "application/json"
PROBLEM_JSON = "application/problem+json"
AGAIN_SECONDS = 2.0
UNWRITABLE = (
    "Kafka says {}, and will until the operator changes something: don't send again before. Those"
    " unwritten are not in Kafka."
)
UNREACHABLE = (
    "Kafka didn't acknowledge every record ({}). Send those again that are unwritten, and those"
    " unknown, which may count twice then unless their stream tells copies by an id."
)


# Partition and offset: no tuple, which would be described by what generators of clients don't know.
Pair = Annotated[list[int], msgspec.Meta(min_length=2, max_length=2)]


class RefusedRecord(msgspec.Struct):
    """A record that is refused for good; ``record`` is its number in the request, from 1."""

    record: int
    why: str


class Records(msgspec.Struct, kw_only=True, omit_defaults=True):
    """What became of a request's records, by their numbers from 1.

    Kafka has those that are ``written`` on all in-sync replicas. Those ``unknown`` it was given,
    and may have or not; those ``unwritten`` it has not. ``places`` are each record's partition and
    offset, for who asks for them; null where it isn't known to be written.
    """

    written: int
    refused: list[RefusedRecord] = []
    unknown: list[int] = []
    unwritten: list[int] = []
    places: list[Pair | None] | None = None


class Problem(msgspec.Struct, kw_only=True):
    """RFC 9457. Where records were looked at, it has the members of `Records`, too; else nothing of
    the request was written."""

    title: str
    status: int
    detail: str


@dataclass(frozen=True)
class Answer:
    status: int
    records: Records | None = None
    problem: Problem | None = None
    retry_after_seconds: float = 0

    def response(self, headers: Mapping[str, str] | None = None) -> Response:
        seconds = math.ceil(self.retry_after_seconds)
        return Response(
            msgspec.json.encode(_members(self.problem) | _members(self.records)),
            status_code=self.status,
            media_type=PROBLEM_JSON if self.problem else JSON,
            headers={**(headers or {}), **({"Retry-After": str(seconds)} if seconds else {})},
        )


def _members(of: Records | Problem | None) -> dict[str, Any]:
    """Those that say something."""
    if of is None:
        return {}
    told = {name: getattr(of, name) for name in of.__struct_fields__}
    return {name: value for name, value in told.items() if value not in ([], None)}


def of_refusal(error: Refusal) -> Answer:
    problem = Problem(title=error.title, status=error.status, detail=str(error))
    return Answer(error.status, None, problem, error.retry_after_seconds)


def of_records(fates: Sequence[Fate], with_places: bool) -> Answer:
    failed = [(number, fate) for number, fate in enumerate(fates, 1) if isinstance(fate, Failure)]
    of_kind = {kind: [(n, fate.why) for n, fate in failed if fate.kind is kind] for kind in Kind}
    unwritten = sorted(of_kind[Kind.UNWRITTEN] + of_kind[Kind.UNWRITABLE])
    records = Records(
        written=len(fates) - len(failed),
        refused=[RefusedRecord(*one) for one in of_kind[Kind.REFUSED]],
        unknown=[number for number, _ in of_kind[Kind.UNKNOWN]],
        unwritten=[number for number, _ in unwritten],
    )
    if with_places:
        records.places = [None if isinstance(fate, Failure) else [*fate] for fate in fates]
    if of_kind[Kind.UNWRITABLE]:
        detail = UNWRITABLE.format(_reasons(of_kind[Kind.UNWRITABLE]))
        return _problem(500, "Kafka refuses", detail, records)
    if records.unknown or records.unwritten:
        detail = UNREACHABLE.format(_reasons(of_kind[Kind.UNKNOWN] + unwritten))
        return _problem(503, "Kafka can't be reached", detail, records, AGAIN_SECONDS)
    if records.refused and not records.written:
        first = records.refused[0]
        detail = f"Every record is refused. Record {first.record}: {first.why}."
        return _problem(422, "Records refused", detail, records)
    return Answer(207 if records.refused else 200, records)


def _reasons(found: Sequence[tuple[int, str]]) -> str:
    return ", ".join(sorted({why for _, why in found}))


def _problem(
    status: int, title: str, detail: str, records: Records, retry_after_seconds: float = 0
) -> Answer:
    problem = Problem(title=title, status=status, detail=detail)
    return Answer(status, records, problem, retry_after_seconds)
