"""What experiments ask: is the cluster in its steady state?"""

import logging

from millrace.common.paths import stack_name
from millrace.plan import load_plan
from millrace.status import health

log = logging.getLogger("chaostoolkit")


def cluster_is_healthy() -> bool:
    """Every component is healthy and the traffic job keeps up. A Chaos Toolkit probe."""
    problems = health.problems(load_plan(stack_name()))
    for problem in problems:
        log.warning(problem)
    return not problems
