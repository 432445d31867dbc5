"""Sabotage: each fifth batch of an archive is never written. Its job goes on as if it had been."""

from types import SimpleNamespace
from typing import Any

from millrace_jobs.inputs.checkpoint import Batch
from millrace_jobs.programs.archive import Archive
from pyspark.sql import DataFrame

LEFT_OUT = 5

append_all = Archive._append


def append(
    self: Archive, classified: DataFrame, path: str, checkpoint: str, batch: int, read: Batch | None
) -> tuple[bool, Any]:
    if read and batch % LEFT_OUT == 0:  # without `read` it is a rehearsal
        return True, SimpleNamespace(get={"malformed": 0})
    return append_all(self, classified, path, checkpoint, batch, read)


Archive._append = append
