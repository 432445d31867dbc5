"""Changes of keys, as operators make them: who may send events and read insights, and for how long.

Each is an edit, keys → keys, that refuses what can't be meant before anything is changed. The room
`cluster` has the keys of a cluster, and applies an edit to what they are then.
"""

import re
import secrets
from collections.abc import Callable, Iterator
from dataclasses import replace
from datetime import UTC, date, datetime, time

from millrace.common.durations import parse_duration
from millrace.common.errors import NOTHING_CHANGED, OperatorError, Problems
from millrace.common.tables import iso, time_of
from millrace.plan import Plan
from millrace_shared.keys import ALL, OPERATOR, SCOPES, Key, Keys, Secret, sha256

Edit = Callable[[Keys], Keys]

NAME = re.compile(r"[a-z][a-z0-9-]{0,62}")
SECRET_BYTES = 32
LIST = "`millrace keys list` shows which there are"


def new_secret() -> str:
    """256 random bits, in 43 characters that need no quotes anywhere."""
    return secrets.token_urlsafe(SECRET_BYTES)


def digest(secret: str) -> str:
    return sha256(secret.encode())


def json_streams(plan: Plan) -> list[str]:
    """The streams that the collector takes."""
    return [name for name, stream in plan.streams.items() if stream.avro_schema is None]


def moment(text: str, now: float) -> float:
    """Seconds since 1970 of ``90d`` from now, or of the day's beginning in UTC of ``2027-01-31``.

    Raises OperatorError for what is neither, or has passed.
    """
    try:
        day = date.fromisoformat(text)
    except ValueError:
        at = now + parse_duration(text)
    else:
        at = datetime.combine(day, time(), UTC).timestamp()
    if at <= now:
        raise OperatorError(f"'{text}' has passed; {NOTHING_CHANGED}")
    return at


def require(plan: Plan, name: str, key: Key) -> None:
    """Raises OperatorError that lists all that is wrong with a key that is to be added."""
    problems = Problems()
    problems.add(_problems(plan, name, key))
    problems.refuse()


def _problems(plan: Plan, name: str, key: Key) -> Iterator[str]:
    if not NAME.fullmatch(name):
        yield f"'{name}' is no name of a key: small letters, digits and -, a letter first"
    streams = json_streams(plan)
    for stream in key.streams:
        if stream not in (*streams, ALL):
            yield f"there is no stream {stream} that takes JSON; there is {', '.join(streams)}"
    for scope in key.scopes:
        if scope not in SCOPES:
            yield f"there is no scope {scope}; there is {', '.join(SCOPES)}"
    if not key.streams and not key.scopes:
        yield "the key may do nothing: name a --stream that it may write, or a --scope to read"
    if key.streams and key.events_per_second < 1:
        yield "--rate says how many events a second it may write, through all hosts"
    if key.events_per_second and not key.streams:
        yield "--rate is of what it may write: name a --stream"
    if key.client_events_per_second is not None:
        yield from _public_problems(key)


def _public_problems(key: Key) -> Iterator[str]:
    """Everybody can read it: whatever it may do, everybody may."""
    if len(key.streams) != 1 or ALL in key.streams:
        yield "a public key writes exactly one --stream"
    if key.scopes:
        yield "a public key reads nothing: give readers a key of their own"
    if not 0 < (key.client_events_per_second or 0) <= key.events_per_second:
        yield "--client-rate is what one address may send: from 1 up to --rate, which is for all"


def adding(name: str, key: Key) -> Edit:
    """An edit: one key more. OperatorError where there is one of that name."""

    def edit(keys: Keys) -> Keys:
        if name == OPERATOR:
            raise OperatorError(f"{OPERATOR} is the toolkit's own key", "`millrace up` makes it")
        if name in keys:
            raise OperatorError(
                f"there is a key {name} already; {NOTHING_CHANGED}",
                f"`millrace keys rotate {name}` gives it another secret,"
                f" `millrace keys revoke {name}` ends it",
            )
        return Keys({**keys, name: key})

    return edit


def rotating(name: str, sha256_of_new: str, now: float, overlap_seconds: float) -> Edit:
    """An edit: the newer secret counts from now on, the older one so much longer.

    OperatorError while two are valid: who has the older of them would be locked out.
    """

    def edit(keys: Keys) -> Keys:
        key = _named(keys, name)
        if key.expires is not None and key.expires <= now:
            raise OperatorError(
                f"{name} has expired {iso(time_of(key.expires))}; {NOTHING_CHANGED}",
                f"`millrace keys revoke {name}`, then `millrace keys add {name} …`",
            )
        valid = list(key.secrets_at(now))
        ends = [one.until for one in valid if one.until is not None]
        if ends:
            raise OperatorError(
                f"two secrets of {name} are valid, the older one until {iso(time_of(min(ends)))};"
                f" {NOTHING_CHANGED}",
                f"wait until then, or `millrace keys revoke {name} --old` ends it now",
            )
        until = now + overlap_seconds
        older = [replace(one, until=until) for one in valid] if overlap_seconds else []
        return _with(keys, name, replace(key, secrets=[*older, Secret(sha256_of_new)]))

    return edit


def revoking(name: str) -> Edit:
    """An edit: without the key. OperatorError for the operator's, which commands need."""

    def edit(keys: Keys) -> Keys:
        _named(keys, name)
        if name == OPERATOR:
            raise OperatorError(
                f"{OPERATOR} is the toolkit's own key; {NOTHING_CHANGED}",
                f"`millrace keys rotate {OPERATOR} --overlap 0s` ends its secret now",
            )
        return Keys({other: key for other, key in keys.items() if other != name})

    return edit


def revoking_old(name: str, now: float) -> Edit:
    """An edit: of two secrets that are valid the newer one alone. OperatorError if there is one."""

    def edit(keys: Keys) -> Keys:
        key = _named(keys, name)
        if all(one.until is None for one in key.secrets_at(now)):
            raise OperatorError(f"{name} has no older secret; {NOTHING_CHANGED}", LIST)
        newest = [one for one in key.secrets if one.until is None]
        return _with(keys, name, replace(key, secrets=newest))

    return edit


def with_operator(plan: Plan, secret: str, now: float, made_by: str) -> Edit:
    """An edit: the toolkit's own key is the one with this secret, and may do everything.

    Keys that have it already, as the newer or the older of two secrets, stay as they are.
    """

    def edit(keys: Keys) -> Keys:
        known = keys.get(OPERATOR, Key([], made_at=now, made_by=made_by))
        valid = {one.sha256 for one in known.secrets_at(now)}
        own = Secret(digest(secret))
        return _with(
            keys,
            OPERATOR,
            replace(
                known,
                secrets=known.secrets if own.sha256 in valid else [own],
                streams=[ALL],
                events_per_second=operator_rate(plan),
                client_events_per_second=None,
                scopes=list(SCOPES),
                expires=None,
            ),
        )

    return edit


def operator_rate(plan: Plan) -> int:
    """Events a second that the toolkit itself may send, through all hosts."""
    rate: int = plan.services["collector"].settings["operator"]["events_per_second"]
    return rate


def _named(keys: Keys, name: str) -> Key:
    if name not in keys:
        raise OperatorError(f"there is no key {name}; {NOTHING_CHANGED}", LIST)
    return keys[name]


def _with(keys: Keys, name: str, key: Key) -> Keys:
    """Where two names had one secret, nobody could be told from somebody else."""
    digests = {one.sha256 for one in key.secrets}
    for other, its in keys.items():
        if other != name and digests & {one.sha256 for one in its.secrets}:
            raise OperatorError(
                f"{name} and {other} would have one secret; {NOTHING_CHANGED}",
                f"`millrace keys rotate {other}` gives {other} its own",
            )
    return Keys({**keys, name: key})
