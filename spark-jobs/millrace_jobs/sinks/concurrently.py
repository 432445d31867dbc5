"""Two writes of a batch at once, because each is mostly waiting for other hosts."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager


@contextmanager
def concurrently(write: Callable[[], None]) -> Iterator[None]:
    """Does ``write`` beside the block, and leaves only once both have ended.

    Raises the block's error, or else that of ``write``. Either may then be done without the other:
    both have to bear being repeated.
    """
    with ThreadPoolExecutor(1, "beside") as pool:
        written = pool.submit(write)
        yield
        written.result()
