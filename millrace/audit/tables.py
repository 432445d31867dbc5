"""What Cassandra has, read at a quorum of all replicas."""

from collections import Counter, defaultdict
from collections.abc import Iterable
from datetime import UTC, date, datetime
from typing import Any

from millrace.audit.truth import COUNTS, SIZES, Figures, PageList, Window
from millrace.cluster.cassandra import overlay_of, read_each
from millrace.plan import Plan
from millrace_shared.generations import STREAM, TRAFFIC

TRAFFIC_JOB = "traffic"
COLUMNS = ("requests", "page_views", "bytes", *(f"status_{name}" for name in COUNTS[3:]))


class Tables:
    """Days and hours are given by their start, in seconds since 1970."""

    def __init__(self, plan: Plan, session: Any) -> None:
        self._session = session
        self._keyspace = plan.names.cassandra.keyspace

    def windows(self, days: Iterable[int]) -> dict[Window, Figures]:
        """Returns all windows of these days, of each size."""
        rows = self._each(
            f"SELECT window, window_start, {', '.join(COLUMNS)} FROM {self._keyspace}.traffic"
            " WHERE window = ? AND bucket = ?",
            [(size, _date(day)) for size in SIZES for day in days],
        )
        return {
            (row.window, _seconds(row.window_start)): {
                name: getattr(row, column) for name, column in zip(COUNTS, COLUMNS, strict=True)
            }
            for row in rows
        }

    def pages(self, hours: Iterable[int]) -> dict[int, PageList]:
        """Returns lists of pages by hour. Rows that are older than their list are no part of it."""
        wanted = [(datetime.fromtimestamp(hour, UTC),) for hour in hours]
        lists = self._each(
            f"SELECT bucket, error, other, since FROM {self._keyspace}.page_lists WHERE bucket = ?",
            wanted,
        )
        rows = self._each(
            f"SELECT bucket, url, page_views, version FROM {self._keyspace}.pages WHERE bucket = ?",
            wanted,
        )
        found = {_seconds(row.bucket): row for row in lists}
        views: dict[int, dict[str, int]] = defaultdict(dict)
        for row in rows:
            hour = _seconds(row.bucket)
            if hour not in found or row.version >= found[hour].since:
                views[hour][row.url] = row.page_views
        return {
            hour: PageList(views[hour], found[hour].error, found[hour].other)
            if hour in found
            else PageList(views[hour])  # by a version that counted all pages
            for hour in views.keys() | found.keys()
        }

    def counted_again(self, hours: Iterable[int]) -> list[int]:
        """Returns the hours of which readers see another count than the stream's."""
        overlay = overlay_of(self._session, self._keyspace, TRAFFIC)
        return [
            hour
            for hour in hours
            if overlay.at(datetime.fromtimestamp(hour, UTC)).generation != STREAM
        ]

    def late(self, days: Iterable[int]) -> dict[Window, int]:
        """Late events by size of window and day, those of the job's present checkpoint.

        A job that began anew counts everything anew, under another checkpoint.
        """
        [progress] = self._each(
            f"SELECT checkpoint FROM {self._keyspace}.job_progress WHERE job = ?", [(TRAFFIC_JOB,)]
        )
        rows = self._each(
            f"SELECT bucket, window, job, checkpoint, events FROM {self._keyspace}.late_events"
            " WHERE bucket = ?",
            [(_date(day),) for day in days],
        )
        late: Counter[Window] = Counter()
        for row in rows:
            if (row.job, row.checkpoint) == (TRAFFIC_JOB, progress.checkpoint):
                late[row.window, _seconds(datetime.combine(row.bucket.date(), _MIDNIGHT))] += (
                    row.events
                )
        return late

    def _each(self, query: str, bindings: list[tuple[Any, ...]]) -> list[Any]:
        return read_each(self._session, query, bindings)


_MIDNIGHT = datetime.min.time()


def _date(day: int) -> date:
    return datetime.fromtimestamp(day, UTC).date()


def _seconds(moment: datetime) -> int:
    """Returns Unix seconds; Cassandra's driver gives UTC without saying so."""
    return round(moment.replace(tzinfo=UTC).timestamp())
