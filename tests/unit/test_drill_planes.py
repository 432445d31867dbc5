"""A sampler keeps what it sees, whatever its probe does."""

import itertools
import time

import numpy as np
import pytest

from millrace.drill.gaps import longest
from millrace.drill.planes import Sampler


@pytest.fixture
def sample():
    """Runs a probe every few milliseconds until `until` is true; returns the stopped sampler."""

    def run(probe, until) -> Sampler:
        sampler = Sampler("test", probe, period=0.002)
        sampler.start()
        deadline = time.time() + 20
        while not until(sampler) and time.time() < deadline:
            pass
        sampler.stop()
        sampler.join(5)
        return sampler

    return run


def test_it_may_be_read_while_it_samples(sample):
    count = itertools.count()
    sampler = sample(lambda: next(count), lambda s: len(s.successes()) + len(s.growths()) > 400)
    assert len(sampler.successes()) > 200
    assert len(sampler.growths()) == len(sampler.successes()) - 1


def test_errors_and_hanging_are_gaps(sample):
    count = itertools.count()

    def probe() -> None:
        number = next(count)
        if number == 5:
            time.sleep(0.5)
        if 20 <= number < 30:
            raise ConnectionError("away")

    sampler = sample(probe, lambda s: len(s.successes()) > 60)
    times = sampler.successes()
    assert longest(times, times[0], times[-1]).seconds == pytest.approx(0.5, abs=0.4)
    assert sampler.error == "ConnectionError: away"
    assert np.all(np.diff(times) >= 0)
