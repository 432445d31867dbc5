"""How drills are performed."""

from dataclasses import dataclass

# As long as the control drill is held: the longest gap grows with the time that is watched.
FLOOR_SECONDS = 60.0


@dataclass(frozen=True)
class DrillOptions:
    """How a drill is performed.

    Its fault is injected ``times`` times, under ``rate`` events/s, each time once the standby has
    stood by for ``standby_idle_minutes``. With ``await_alerts`` a fault is held until its alert is
    due, and what fired has to resolve.

    Before each fault every plane is watched for ``floor_seconds`` with nothing broken, which is so
    much longer a run. A shorter time finds a lower floor, by which fewer goals are reached.
    """

    times: int = 3
    rate: float = 2000.0
    standby_idle_minutes: float = 0.0
    await_alerts: bool = False
    floor_seconds: float = FLOOR_SECONDS
