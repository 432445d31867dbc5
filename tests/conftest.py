"""What all tests share: of two processes, one runs Spark's tests and the other all others.

Each keeps its order, so that a test that passes beside others does so again.
"""

from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

# How long an example takes is the machine's matter, and these are busy: no test fails by it.
settings.register_profile("millrace", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("millrace")

SPARK = Path(__file__).parent / "jobs"


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        group = "spark" if SPARK in item.path.parents else "others"
        item.add_marker(pytest.mark.xdist_group(group))
