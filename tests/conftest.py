"""What all tests share: examples have no deadline; a test that asks for a Spark is marked so."""

import pytest
from hypothesis import HealthCheck, settings

# How long an example takes is the machine's matter, and these are busy: no test fails by it.
settings.register_profile("millrace", deadline=None, suppress_health_check=[HealthCheck.too_slow])
settings.load_profile("millrace")

SPARK_FIXTURES = {"spark", "connectors", "spark_settings"}


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks by fixture, not by hand: a JVM that nobody named would be in everybody's way."""
    for item in items:
        if SPARK_FIXTURES & {*getattr(item, "fixturenames", ())}:
            item.add_marker(pytest.mark.spark)
