"""A drill's clients don't wait for the cores of what they measure."""

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from millrace.drill.priority import NICE, SESSION, ahead, prefer

root = pytest.mark.skipif(os.geteuid() != 0, reason="only root may go before others")


@pytest.fixture
def client() -> Iterator[int]:
    """A process in a session of its own, as the load has."""
    with subprocess.Popen(["sleep", "60"], start_new_session=True) as process:
        yield process.pid
        process.kill()


@root
def test_a_client_and_its_session_go_first(client: int) -> None:
    prefer(client)
    assert os.getpriority(os.PRIO_PROCESS, client) == NICE
    session = Path(SESSION.format(process=client))
    assert not session.exists() or session.read_text().strip().endswith(f"nice {NICE}")


@root
def test_afterwards_all_is_as_it_was() -> None:
    before = os.getpriority(os.PRIO_PROCESS, 0)
    with ahead():
        assert os.getpriority(os.PRIO_PROCESS, 0) == NICE
    assert os.getpriority(os.PRIO_PROCESS, 0) == before


def test_a_client_that_is_gone_is_nobodys_error(client: int) -> None:
    os.kill(client, 9)
    os.waitpid(client, 0)
    prefer(client)
