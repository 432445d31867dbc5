"""Counts a web log once more, exactly and from the file alone: the truth that results are held to.

Plain Python and sets, no estimate, no state, no cluster. Whatever the pipeline says of a log after
kills, restarts and failovers has to equal this. (Of what the jobs refuse it knows malformed lines;
an event that is well formed but of a time out of range it counts.)
"""

from collections import Counter, defaultdict
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from hashlib import blake2b

from millrace.audit.page_views import PageViewRule, page_of
from millrace.replay.progress import HOUR
from millrace.replay.source import Source
from millrace.weblog import Malformed, Reader, Request, detect

MINUTE = 60
SLOT = 1800
STATUS_CLASSES = ("2xx", "3xx", "4xx", "5xx", "other")


@dataclass
class Counts:
    """What happened in a window, or in a whole log."""

    requests: int = 0
    page_views: int = 0
    bytes: int = 0
    status: Counter[str] = field(default_factory=lambda: Counter(dict.fromkeys(STATUS_CLASSES, 0)))
    clients: set[str] = field(default_factory=set)

    def add(self, request: Request, is_page_view: bool) -> None:
        self.requests += 1
        self.page_views += is_page_view
        self.bytes += request.bytes or 0
        self.status[_status_class(request.status)] += 1
        self.clients.add(request.address)


@dataclass
class Recount:
    """Windows are named by their start."""

    total: Counts = field(default_factory=Counts)
    minutes: dict[datetime, Counts] = field(default_factory=lambda: defaultdict(Counts))
    hours: dict[datetime, Counts] = field(default_factory=lambda: defaultdict(Counts))
    pages: Counter[str] = field(default_factory=Counter)
    # (start of the half hour, visitor) → requests
    slots: Counter[tuple[datetime, str]] = field(default_factory=Counter)
    # visitor → when, as the log has it
    moments: dict[str, list[datetime]] = field(default_factory=lambda: defaultdict(list))
    malformed: int = 0
    first: datetime | None = None
    last: datetime | None = None

    def sessions(self) -> list[list[datetime]]:
        """Each visitor's requests, cut wherever none came for as long as a slot."""
        found = []
        for moments in self.moments.values():
            session: list[datetime] = []
            for moment in sorted(moments):
                if session and moment - session[-1] >= timedelta(seconds=SLOT):
                    found.append(session)
                    session = []
                session.append(moment)
            found.append(session)
        return found


def recount(
    path: str, is_page_view: PageViewRule, line_bytes: int, shift_hours: int = 0
) -> Recount:
    """The truth about a log whose events were all moved by ``shift_hours``."""
    result = Recount()
    lines = [line for line in Source(path).lines(0, 0, line_bytes) if line]
    read = Reader(detect([line.data for line in lines]).format)
    for line in lines:
        try:
            request = read(line.data)
        except Malformed:
            result.malformed += 1
            continue
        _add(result, request, is_page_view(request), request.time + shift_hours * HOUR)
    return result


def _add(result: Recount, request: Request, is_page_view: bool, time: int) -> None:
    moment = datetime.fromtimestamp(time, UTC)
    windows = (
        result.total,
        result.minutes[_start(time, MINUTE)],
        result.hours[_start(time, HOUR)],
    )
    for counts in windows:
        counts.add(request, is_page_view)
    if is_page_view:
        result.pages[page_of(request.url)] += 1
    visitor = blake2b(request.address.encode(), digest_size=16).hexdigest()
    result.slots[_start(time, SLOT), visitor] += 1
    result.moments[visitor].append(moment)
    result.first = min(result.first or moment, moment)
    result.last = max(result.last or moment, moment)


def _start(time: int, size: int) -> datetime:
    return datetime.fromtimestamp(time - time % size, UTC)


def _status_class(status: int) -> str:
    name = f"{status // 100}xx"
    return name if name in STATUS_CLASSES else "other"
