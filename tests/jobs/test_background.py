"""What is done beside is done in order, on one thread, and is nobody else's trouble."""

import threading

from millrace_jobs.leader.background import Worker

from tests.waiting import PATIENCE_SECONDS


def test_work_is_done_in_order_on_one_thread_which_begins_with_it() -> None:
    before = threading.active_count()
    worker = Worker("test")
    assert threading.active_count() == before
    done: list[tuple[int, str]] = []
    for number in range(3):
        worker.begin(lambda number=number: done.append((number, threading.current_thread().name)))
        assert worker.wait(PATIENCE_SECONDS)
    assert done == [(number, "test") for number in range(3)]


def test_it_is_busy_until_its_work_has_ended() -> None:
    worker, over = Worker("test"), threading.Event()
    assert not worker.is_busy
    worker.begin(lambda: over.wait(PATIENCE_SECONDS) and None)
    assert worker.is_busy
    assert not worker.wait(0)
    over.set()
    assert worker.wait(PATIENCE_SECONDS)
    assert not worker.is_busy


def test_what_work_raises_ends_nothing() -> None:
    worker, done = Worker("test"), threading.Event()

    def fail() -> None:
        raise RuntimeError

    worker.begin(fail)
    assert worker.wait(PATIENCE_SECONDS)
    worker.begin(done.set)
    assert done.wait(PATIENCE_SECONDS)
