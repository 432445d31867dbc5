"""What experiments ask: is the cluster in its steady state?"""

import logging
from operator import not_

from millrace.common.paths import stack_name
from millrace.common.waiting import wait_until
from millrace.plan import load_plan
from millrace.status import health
from millrace.status.verdict import HEALTHY

log = logging.getLogger("chaostoolkit")

# The load has only just begun, and a host that answers late isn't a host that is ill.
SETTLE_SECONDS = 120.0
ASK_EVERY_SECONDS = 5.0


def cluster_state() -> str:
    """``healthy``: every component is, and every job keeps up; else what is wrong, in the end.

    A Chaos Toolkit probe.
    """
    plan = load_plan(stack_name())

    def problems() -> list[str]:
        found = health.problems(plan)
        for problem in found:
            log.warning(problem)
        return found

    return "; ".join(wait_until(problems, SETTLE_SECONDS, ASK_EVERY_SECONDS, done=not_)) or HEALTHY
