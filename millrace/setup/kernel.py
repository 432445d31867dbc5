"""Kernel limits of this machine that its hosts share."""

from pathlib import Path

from millrace.setup.processes import as_root, run
from millrace.setup.steps import Report

# Every systemd holds several inotify instances, and a kernel's default of 128 for all of root's
# processes ends at some twenty hosts: the next one dies while it boots. Two clusters need 400.
AT_LEAST = {"fs.inotify.max_user_instances": 1024}
SYSCTL = Path("/proc/sys")


def ensure_limits(report: Report) -> None:
    """Raise what is too low, until the next reboot; never lower anything."""
    low = {name: least for name, least in AT_LEAST.items() if _current(name) < least}
    for name, least in low.items():
        run(
            as_root(["sysctl", "-qw", f"{name}={least}"]),
            what=f"raising {name} to {least}",
            hint="this machine may be a container itself: raise the limit on the one outside",
        )
    raised = ", ".join(f"{name}={least}" for name, least in low.items())
    report(f"raised {raised}" if low else "high enough")


def _current(name: str) -> int:
    return int((SYSCTL / name.replace(".", "/")).read_text())
