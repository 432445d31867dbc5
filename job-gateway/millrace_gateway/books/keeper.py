"""Reads the commits of each archive's table as they come, and enters each in the stream's books.

Only the gateway that acts does so. One that is frozen and goes on beside its successor enters the
same again.
"""

import json
import logging
import threading
import time
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from datetime import UTC, date, datetime, timedelta
from typing import Protocol
from urllib.parse import unquote

from confluent_kafka import KafkaException

from millrace_gateway.books import commits, store
from millrace_gateway.books.account import (
    Entry,
    Figures,
    Offsets,
    Piece,
    after,
    offsets,
    owed,
    without,
)
from millrace_gateway.books.commits import Append
from millrace_gateway.books.files import Missing, Unreachable
from millrace_gateway.books.store import Position
from millrace_gateway.submit import Archive

log = logging.getLogger("gateway.books")

LOOK_SECONDS = 10.0
LETTERS_SECONDS = 300.0  # that a batch's dead letters are waited for, if its job says no more
MOST = 200  # commits at a look: what is known is told in between
DAY = 86_400.0
UNANSWERED = (Unreachable, Missing, KafkaException, *store.UNANSWERED)


class Files(Protocol):
    def names_after(self, folder: str, name: str) -> list[str]: ...
    def read(self, path: str) -> str: ...
    def size(self, path: str) -> int | None: ...


class Witness(Protocol):
    def count(self, topic: str, pieces: Iterable[Piece]) -> int | None: ...


class Store(Protocol):
    def enter(self, entry: Entry) -> None: ...
    def entries(self, stream: str, days: Iterable[date]) -> list[Entry]: ...
    def put_position(self, stream: str, position: Position) -> None: ...
    def position(self, stream: str) -> Position | None: ...
    def dead_letters(self, checkpoint: str, batch: int) -> int: ...
    def skipped(self, job: str, topic: str) -> list[Piece]: ...


@dataclass
class Books:
    """Of one stream: how far they are kept, and the entries of a day that don't come out even."""

    position: Position
    differing: dict[tuple[str, int], Entry] = field(default_factory=dict)

    def take_in(self, entry: Entry) -> None:
        key = entry.checkpoint, entry.batch
        if entry.difference:
            self.differing[key] = entry
        else:
            self.differing.pop(key, None)

    def closed_up_to(self, time: float) -> None:
        self.position = replace(self.position, closed=max(self.position.closed, time))

    def forget(self, before: float) -> None:
        for key, entry in list(self.differing.items()):
            if entry.committed < before:
                del self.differing[key]


class Keeper:
    """``told`` is how far an archive's job said last that it has read: after a batch's commit and
    its dead letters."""

    def __init__(
        self,
        files: Files,
        witness: Witness,
        store: Store,
        told: Callable[[Archive], Offsets],
    ) -> None:
        self._files, self._witness, self._store = files, witness, store
        self._told = told
        self._books: dict[str, Books] = {}

    def figures(self) -> dict[str, Figures]:
        """By stream. For any thread."""
        found = {}
        for stream, books in list(self._books.items()):
            differences = [entry.difference for entry in list(books.differing.values())]
            missing = sum(max(0, difference) for difference in differences)
            surplus = missing - sum(differences)
            position = books.position
            found[stream] = Figures(missing + position.unwritten, surplus, position.closed)
        return found

    def look(self, archives: Collection[Archive], now: float) -> None:
        """Enter what has come since the last look. Streams whose books can't be kept now wait for
        the next one: how far theirs are kept says so."""
        for gone in self._books.keys() - {archive.stream for archive in archives}:
            del self._books[gone]
        for archive in archives:
            try:
                self._keep(archive, now)
            except UNANSWERED as error:
                log.info("the books of %s wait: %s", archive.stream, error)

    def _keep(self, archive: Archive, now: float) -> None:
        if archive.stream not in self._books:
            self._books[archive.stream] = self._open(archive, now)
        books, told = self._books[archive.stream], self._told(archive)  # before commits are read
        books.forget(now - DAY)
        for entry in list(books.differing.values())[-MOST:]:
            self._look_again(archive, books, entry, now)
        self._go_on(archive, books, told, now)
        self._store.put_position(archive.stream, books.position)

    def _go_on(self, archive: Archive, books: Books, told: Offsets, now: float) -> None:
        """From where the books stand; up to a batch that isn't over."""
        versions = self._versions_after(archive, books.position.version)
        closed = now
        for version in versions[:MOST]:
            append = self._commit(archive, version)
            if append and version == versions[-1] and not _is_over(append, told, now):
                closed = append.committed
                break
            if append:
                self._take_in(archive, books, append, now)
                books.closed_up_to(append.committed)
            books.position = replace(books.position, version=version)
        if len(versions) < MOST:  # no more of them, not even beyond what is listed at once
            unwritten = self._unwritten(archive, books.position.reached, told)
            books.position = replace(books.position, unwritten=unwritten)
            books.closed_up_to(closed)

    def _open(self, archive: Archive, now: float) -> Books:
        """Where they were left; or where the table's last checkpoint is, if nobody kept any."""
        position = self._store.position(archive.stream)
        if position is None:
            return Books(Position(self._checkpoint(archive), {}, now))
        books = Books(position)
        today = datetime.fromtimestamp(now, UTC).date()
        for entry in self._store.entries(archive.stream, (today - timedelta(days=1), today)):
            books.take_in(entry)
        return books

    def _checkpoint(self, archive: Archive) -> int:
        try:
            return int(json.loads(self._files.read(f"{archive.log}/_last_checkpoint"))["version"])
        except Missing:
            return -1

    def _versions_after(self, archive: Archive, version: int) -> list[int]:
        try:
            names = self._files.names_after(archive.log, commits.name_of(version))
        except Missing:
            return []  # no event has come yet
        found = (commits.version_of(name) for name in names)
        return [version for version in found if version is not None]

    def _commit(self, archive: Archive, version: int) -> Append | None:
        text = self._files.read(f"{archive.log}/{commits.name_of(version)}")
        return commits.parse(version, text)

    def _take_in(self, archive: Archive, books: Books, append: Append, now: float) -> None:
        if append.read is None:  # by a version that didn't say: the books begin anew after it
            books.position = replace(books.position, reached={})
            return
        entry = self._judge(archive, books.position.reached, append, now)
        self._enter(books, entry)
        reached = after(books.position.reached, append.read)
        books.position = replace(books.position, reached=reached)

    def _judge(self, archive: Archive, reached: Offsets, append: Append, now: float) -> Entry:
        assert append.read is not None
        pieces = owed(reached, append.read)
        left = without(pieces, self._store.skipped(archive.job, archive.topic))
        archived = self._rows(archive, append, now)
        dead_letters = self._store.dead_letters(append.checkpoint, append.batch)
        records: int | None = offsets(left)
        if records != archived + dead_letters:
            records = self._witness.count(archive.topic, left)
        return Entry(
            *(archive.stream, append.committed, append.checkpoint, append.batch, append.version),
            *(records, archived, dead_letters, offsets(pieces) - offsets(left)),
        )

    def _rows(self, archive: Archive, append: Append, now: float) -> int:
        """Of the files that are there. Those of a commit that is older may have been merged."""
        files: Iterable[commits.File] = append.files
        if append.committed > now - DAY:
            files = (
                file
                for file in append.files
                if self._files.size(f"{archive.folder}/{unquote(file.path)}") == file.bytes
            )
        return sum(file.rows for file in files)

    def _unwritten(self, archive: Archive, reached: Offsets, told: Offsets) -> int:
        """Of a partition that the books don't know yet, nothing is expected."""
        read = {partition: (end, end) for partition, end in told.items()}
        if pieces := owed(reached, read):
            left = without(pieces, self._store.skipped(archive.job, archive.topic))
            return self._witness.count(archive.topic, left) or 0
        return 0

    def _look_again(self, archive: Archive, books: Books, entry: Entry, now: float) -> None:
        """A file may have been put back, and dead letters counted at last."""
        with suppress(Missing):  # the commit is gone, too
            if append := self._commit(archive, entry.version):
                archived = self._rows(archive, append, now)
                dead_letters = self._store.dead_letters(entry.checkpoint, entry.batch)
                found = replace(entry, archived=archived, dead_letters=dead_letters)
                if found != entry:
                    self._enter(books, found)

    def _enter(self, books: Books, entry: Entry) -> None:
        self._store.enter(entry)
        books.take_in(entry)
        if entry.difference:
            log.info("the books don't come out even by %d: %s", entry.difference, entry)


def _is_over(append: Append, told: Offsets, now: float) -> bool:
    """Whether a batch's dead letters are counted. It comes after the commit, and before the job
    says that it has read the batch, or begins the next one."""
    if append.read is None or now > append.committed + LETTERS_SECONDS:
        return True
    return all(told.get(partition, -1) >= end for partition, (_, end) in append.read.items())


def keep(keeper: Keeper, archives: Callable[[], Iterator[Archive]]) -> None:
    """In a thread of its own, for as long as the process lives."""

    def watch() -> None:
        while True:
            try:
                keeper.look(list(archives()), time.time())
            except Exception:  # ours, or of ZooKeeper: how far the books are kept tells of it
                log.exception("the books aren't kept")
            time.sleep(LOOK_SECONDS)

    threading.Thread(target=watch, name="books", daemon=True).start()
