"""The pages of an hour as they are stored: a list that grows by what changed, until it is replaced.

While the sketch is exact nothing leaves the list. Once it isn't, pages do, and then all of the list
is written again. A row older than its list's ``since`` is in the list no more: nothing is
deleted, and what a driver wrote that died half-way is told from what counts by the same rule.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta


@dataclass(frozen=True)
class PageList:
    """An hour's pages.

    Attributes:
        views: by page; too high by ``error`` at most.
        other: all page views of the hour less ``views - error`` of each page, so that nothing is
            missing: those of pages that aren't listed, and what may be theirs.
        since: the version from which on rows of the list count.
    """

    views: Mapping[str, int]
    error: int
    other: int
    since: int

    @classmethod
    def of(cls, views: Mapping[str, int], error: int, page_views: int, since: int) -> "PageList":
        """The list of an hour that had ``page_views`` in all."""
        return cls(views, error, page_views - sum(views.values()) + error * len(views), since)


class Written:
    """What this driver has written of hours whose windows are open, to write what changes."""

    def __init__(self, open_seconds: int) -> None:
        self._open = timedelta(seconds=open_seconds)
        self._lists: dict[datetime, PageList] = {}

    def forget(self) -> None:
        """Someone else may have written, or this driver in vain: the next lists are whole."""
        self._lists.clear()

    def change(
        self, hour: datetime, views: Mapping[str, int], error: int, page_views: int, version: int
    ) -> tuple[PageList, dict[str, int]]:
        """The hour's list from now on, and the pages of it that have to be written."""
        before = self._lists.get(hour)
        if before and before.views.keys() <= views.keys():
            since = before.since
            changed = {u: n for u, n in views.items() if before.views.get(u) != n}
        else:
            since, changed = version, dict(views)
        after = PageList.of(views, error, page_views, since)
        self._lists[hour] = after
        oldest = max(self._lists) - self._open
        self._lists = {start: kept for start, kept in self._lists.items() if start >= oldest}
        return after, changed
