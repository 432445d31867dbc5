"""Why something couldn't be counted, in words for whoever asked."""

from py4j.protocol import Py4JNetworkError

from millrace_jobs.quarantine.store import in_a_line

JVM_ENDED = (
    "Spark's JVM ended in the middle, as a rule by the kernel, for lack of memory: `journalctl -k`"
    " of the host says so; memory_mb in configs/components/job_gateway.yaml is the limit"
)


def in_words(error: Exception) -> str:
    """Nobody answers Python once its JVM is gone. Stores have errors of their own for that."""
    if isinstance(error, ConnectionRefusedError | Py4JNetworkError):
        return JVM_ENDED
    return f"{type(error).__name__}: {in_a_line(error)}"
