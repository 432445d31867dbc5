"""Unit tests speak of the stack `local`, whichever stack the suite's cluster has."""

import pytest
from hypothesis import settings

# How long an example takes says how busy the machine is, not whether the code is right.
settings.register_profile("untimed", deadline=None)
settings.load_profile("untimed")


@pytest.fixture(autouse=True)
def local_stack(monkeypatch):
    monkeypatch.setenv("MILLRACE_STACK", "local")
