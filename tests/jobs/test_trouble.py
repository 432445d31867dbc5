"""What an operator reads when something couldn't be counted."""

import pytest
from millrace_jobs.recount.trouble import JVM_ENDED, in_words
from py4j.protocol import Py4JNetworkError

from millrace.plan import load_plan


@pytest.mark.parametrize(
    "error", [ConnectionRefusedError(111, "Connection refused"), Py4JNetworkError("no answer")]
)
def test_a_jvm_that_the_kernel_ended_is_named(error: Exception) -> None:
    assert in_words(error) == JVM_ENDED


def test_the_limit_is_called_by_its_name_and_place() -> None:
    assert "memory_mb in configs/components/job_gateway.yaml" in JVM_ENDED
    assert load_plan("local").services["job_gateway"].settings["upkeep"]["memory_mb"]


def test_other_errors_speak_for_themselves_in_a_line() -> None:
    assert in_words(ValueError("no row\nat x")) == "ValueError: no row"
