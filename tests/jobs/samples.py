"""Events to test with."""

import json
from datetime import UTC, datetime
from functools import cache
from typing import Any

from millrace_jobs.kinds import read_settings
from millrace_jobs.stream import Stream

from millrace.config import load_names
from millrace.config.streams import load_streams
from millrace.plan import load_plan
from millrace.plan.streams import plan_stream
from millrace_shared.names import Names
from millrace_shared.strict import read

# As the jobs get them from the plan.
NAMES = read(Names, load_names().model_dump())


def stream(name: str) -> Stream:
    """One of configs/streams, with its name as its topic."""
    return Stream.of(name, plan_stream(load_streams()[name], name, "small").model_dump())


@cache
def _deployed() -> dict[str, Any]:
    return load_plan("local").spark.rendered()["settings"]


def settings_of(job: str, like: str = "", **changes: Any) -> Any:
    """A job's settings as a laptop's drivers read them, but for the changes.

    Args:
        like: the job whose settings one has that doesn't ship.
    """
    deployed = _deployed()
    return read_settings(job, deployed["common"] | deployed[like or job] | changes)


STREAM = stream("events")
RECEIVED = datetime(2026, 1, 1)

EVENT: dict[str, Any] = {
    "event_id": "0f9e",
    "event_time": "2015-05-17T10:05:03.000Z",
    "visitor_id": "a1",
    "session_hint": None,
    "method": "GET",
    "url": "/projects/xdotool/",
    "referrer": None,
    "status": 200,
    "bytes": 203023,
    "user_agent": "Mozilla/5.0",
    "kind": "page_view",
    "campaign": None,
}


def event(**changes: Any) -> bytes:
    """A valid event but for the changes."""
    return json.dumps(EVENT | changes, separators=(",", ":")).encode()


def without(field: str) -> bytes:
    return json.dumps({name: value for name, value in EVENT.items() if name != field}).encode()


def at(text: str) -> datetime:
    """``2015-05-17 10:05:03`` as rows of Spark show it."""
    return datetime.fromisoformat(text)


def millis(text: str) -> int:
    return int(at(text).replace(tzinfo=UTC).timestamp() * 1000)
