"""Has readers see another generation: those of the API at once, those of the results topic once all
of it is told."""

from collections.abc import Callable, Iterable, Iterator
from datetime import datetime
from itertools import islice

from millrace_jobs.reconcile.count import Progress
from millrace_jobs.reconcile.plan import Refused
from millrace_jobs.recount.counted import Counted, Record
from millrace_jobs.recount.generations import Book, Generation, Seen, aware, seen
from millrace_shared.generations import Layer, NothingBefore, Overlay
from millrace_shared.progress import tell

PORTION = 500  # records of a transaction, which has 15 s

Publish = Callable[[Iterable[Record]], None]  # in a transaction of their own


def switch(counted: Counted, number: int | None, publish: Publish) -> Overlay:
    """Have readers see a generation, in its range; by default the newest one.

    Raises Refused for one that isn't counted, Outrun when somebody else switches, too.
    """
    book = Book(counted.context.tables, counted.rows)
    one = chosen(book, number)
    if not one.is_done:
        raise Refused(
            f"generation {one.number} is counted up to {one.done}Z, of {one.end}Z: ask for the same"
            " count again, which goes on from there"
        )
    before = book.overlay()
    version = _version(counted, before, one.version)
    to = Layer(aware(one.start), aware(one.end), one.number, version)
    if not before.is_told and not before.is_again(to):
        raise Refused(
            "the results topic wasn't told all of the last change: make that again first"
            f" ({'--back' if before.is_back else '--switch, or --back'})"
        )
    return _change(counted, book, before, before.switched(to), publish)


def back(counted: Counted, publish: Publish) -> Overlay:
    """Have readers see what they saw before the last switch. Raises Refused if there was none."""
    book = Book(counted.context.tables, counted.rows)
    before = book.overlay()
    try:
        after = before.taken_back(_version(counted, before, 0))
    except NothingBefore:
        raise Refused(f"readers of {counted.context.job} were never switched") from None
    return _change(counted, book, before, after, publish)


def chosen(book: Book, number: int | None) -> Generation:
    """A generation by its number, or the newest one. Raises Refused."""
    known = {one.number: one for one in book.all()}
    if not known:
        raise Refused("nothing was counted again yet: say --from and --to")
    if number is None:
        return known[max(known)]
    if number not in known:
        raise Refused(f"there is no generation {number}; there are {', '.join(map(str, known))}")
    return known[number]


def records(counted: Counted, overlay: Overlay) -> Iterator[Record]:
    """What the last change of an overlay has to tell: each row that is another now, then that this
    was all."""
    for was in map(Seen.of, overlay.replaced):
        for now in seen(overlay, was.start, was.end):
            if now.generation != was.generation:
                yield from counted.records(
                    now.start, now.end, was.generation, now.generation, now.version
                )
    yield _complete(counted.context.job, overlay)


def _complete(job: str, overlay: Overlay) -> Record:
    assert overlay.changed
    start, end = overlay.changed
    pieces = overlay.pieces(start, end)
    return {
        "key": f"reconciled|{job}",
        "job": job,
        "complete": True,
        "ranges": [
            {"from": _iso(one.start), "to": _iso(one.end), "generation": one.generation}
            for one in pieces
        ],
        "version": overlay.version,
    }


def _change(
    counted: Counted, book: Book, before: Overlay, after: Overlay, publish: Publish
) -> Overlay:
    book.change(before, after)
    tell(f"readers see it, as revision {after.revision}; the results topic is told")
    all_of_it = records(counted, after)
    while portion := list(islice(all_of_it, PORTION)):
        publish(portion)
    book.change(after, after.told())
    return after.told()


def _version(counted: Counted, overlay: Overlay, rows: int) -> int:
    """Above all that readers have seen."""
    return 1 + max(Progress.of(counted.context).version, overlay.version, rows)


def _iso(moment: datetime) -> str:
    return moment.isoformat().replace("+00:00", "Z")
