"""A sampler keeps what it sees, whatever its probe does."""

import itertools
from types import SimpleNamespace

import numpy as np
import pytest

from millrace.drill import planes
from millrace.drill.gaps import longest
from millrace.drill.planes import Sampler
from tests.clock import Clock
from tests.waiting import PATIENCE_SECONDS, soon


@pytest.fixture
def clock(monkeypatch) -> Clock:
    """What a sampler's moments are told by; a probe that hangs moves it."""
    clock = Clock(1000)
    monkeypatch.setattr(planes, "time", SimpleNamespace(time=clock))
    return clock


@pytest.fixture
def sample():
    """Runs a probe every few milliseconds until `until` is true; returns the stopped sampler."""

    def run(probe, until) -> Sampler:
        sampler = Sampler("test", probe, period=0.002)
        sampler.start()
        soon(lambda: until(sampler), "it has sampled so much")
        sampler.stop()
        sampler.join(PATIENCE_SECONDS)
        return sampler

    return run


def test_it_may_be_read_while_it_samples(sample):
    count = itertools.count()
    sampler = sample(lambda: next(count), lambda s: len(s.successes()) + len(s.growths()) > 400)
    assert len(sampler.successes()) > 200
    assert len(sampler.growths()) == len(sampler.successes()) - 1


def test_errors_and_hanging_are_gaps(sample, clock):
    count = itertools.count()

    def probe() -> None:
        number = next(count)
        clock.sleep(0.5 if number == 5 else 0.01)
        if 20 <= number < 30:
            raise ConnectionError("away")

    sampler = sample(probe, lambda s: len(s.successes()) > 60)
    times = sampler.successes()
    assert longest(times, times[0], times[-1]).seconds == pytest.approx(0.5)
    assert longest(times[6:], times[6], times[-1]).seconds == pytest.approx(11 * 0.01)
    assert sampler.error == "ConnectionError: away"
    assert np.all(np.diff(times) >= 0)
