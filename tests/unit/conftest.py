"""Unit tests speak of the stack `local`, whichever stack the suite's cluster has."""

import pytest


@pytest.fixture(autouse=True)
def local_stack(monkeypatch):
    monkeypatch.setenv("MILLRACE_STACK", "local")
