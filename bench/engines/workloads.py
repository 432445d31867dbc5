"""All workloads by name."""

from bench.engines.recount import NEXMARK
from bench.engines.workload import Workload
from bench.engines.ysb import IN_REDIS, YSB

WORKLOADS: dict[str, Workload] = {each.name: each for each in (YSB, IN_REDIS, *NEXMARK)}
