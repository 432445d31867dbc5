"""Lists of pages: who reads table and topic by `since` sees the newest one, whatever happened."""

from datetime import datetime, timedelta
from types import SimpleNamespace
from typing import Any

from hypothesis import given
from hypothesis import strategies as st
from millrace_jobs.programs.pages import PageList, Written
from millrace_jobs.programs.traffic import Traffic

from tests.jobs.samples import settings_of

HOUR = datetime(2026, 1, 1, 10)
PAGES = st.dictionaries(st.sampled_from(["/", "/a", "/b", "/c"]), st.integers(5, 9))
# What each batch counts, its error, and what becomes of it.
BATCHES = st.lists(
    st.tuples(PAGES, st.integers(0, 2), st.sampled_from(["written", "half", "another driver"])),
    min_size=1,
)


class Reader:
    """Rows of one hour by page, with their versions; its list, and what it was made of."""

    def __init__(self) -> None:
        self._rows: dict[str, tuple[int, int]] = {}
        self.list: PageList | None = None

    def take(self, rows: dict[str, int], version: int) -> None:
        self._rows |= {url: (views, version) for url, views in rows.items()}

    def listed(self) -> dict[str, int]:
        assert self.list
        return {u: n for u, (n, version) in self._rows.items() if version >= self.list.since}


@given(BATCHES)
def test_a_reader_sees_the_newest_list(batches: list[tuple[dict[str, int], int, str]]) -> None:
    reader, written = Reader(), Written(3600)
    for version, (views, error, fate) in enumerate(batches):
        if fate == "another driver":
            written = Written(3600)
        after, changed = written.change(HOUR, views, error, 100, version)
        if fate == "half":  # its driver died: the rows are there, the list isn't
            reader.take(changed, version)
            written.forget()
            continue
        reader.take(changed, version)
        reader.list = after
        assert reader.listed() == views
        assert sum(views.values()) - error * len(views) + after.other == 100


def test_while_all_pages_are_counted_only_changes_are_written() -> None:
    written = Written(3600)
    written.change(HOUR, {"/": 1, "/a": 2}, 0, 3, version=7)
    after, changed = written.change(HOUR, {"/": 1, "/a": 3, "/b": 1}, 0, 5, version=8)
    assert changed == {"/a": 3, "/b": 1}
    assert (after.error, after.other, after.since) == (0, 0, 7)


def test_a_list_that_lost_a_page_is_written_whole() -> None:
    written = Written(3600)
    written.change(HOUR, {"/": 1, "/a": 2}, 0, 3, version=7)
    after, changed = written.change(HOUR, {"/a": 9}, 4, 13, version=8)
    assert changed == {"/a": 9}
    assert (after.error, after.other, after.since) == (4, 8, 8)


def test_a_driver_that_leads_again_writes_lists_whole() -> None:
    """What it thought that it had written may not be there, and another may have led meanwhile."""
    context: Any = SimpleNamespace(settings=settings_of("traffic", watermark_seconds=3600))
    results: Any = SimpleNamespace(take_over=lambda: None)
    job = Traffic(context, results, live=SimpleNamespace())  # type: ignore[arg-type]
    for version in (7, 8):
        after, changed = job._written.change(HOUR, {"/": 1}, 0, 1, version)
        assert (after.since, changed) == (version, {"/": 1})
        job.on_lead()


def test_hours_that_are_over_are_forgotten() -> None:
    written = Written(open_seconds=3600)
    for hour in range(10):
        written.change(HOUR + timedelta(hours=hour), {"/": 1}, 0, 1, version=hour)
    assert len(written._lists) == 2
