"""When each event is due: an open loop's clock, which waits for no answer. Pure."""

import numpy as np

STEP = 0.1  # s; rates are constant in between

Seconds = np.ndarray
# Share of the nominal rate at a moment of a run of a given length. The mean is 1, a ramp's is 1/2.
# Plain arithmetic only: a sine may differ by a bit on another machine, and event times with it.
PROFILES = {
    "steady": lambda moment, length: np.ones_like(moment),
    "ramp": lambda moment, length: moment / length,
    # Five times as much in one second of ten.
    "burst": lambda moment, length: np.where(moment % 10 < 1, 5.0, 5 / 9),
    # Between a half and one and a half, in triangles of a minute.
    "wave": lambda moment, length: 0.5 + np.abs((moment % 60) / 30 - 1),
}


class Schedule:
    """Numbers to times and back; both in seconds since the start."""

    def __init__(self, profile: str, rate: float, seconds: float) -> None:
        steps = max(1, round(seconds / STEP))
        self._times = np.linspace(0, seconds, steps + 1)
        middles = (self._times[:-1] + self._times[1:]) / 2
        amounts = rate * PROFILES[profile](middles, seconds) * np.diff(self._times)
        self._counts = np.concatenate([[0.0], np.cumsum(amounts)])
        # Sums of tenths end a hair beside the whole number that they mean.
        self._counts[-1] = np.round(self._counts[-1], 6)
        self.events = int(self._counts[-1])

    def times(self, numbers: np.ndarray) -> np.ndarray:
        """Returns when events are due."""
        return np.interp(numbers, self._counts, self._times)

    def due(self, elapsed: float) -> int:
        """Returns how many events are due by then."""
        return min(self.events, int(np.interp(elapsed, self._times, self._counts)))
