"""What a job of one file makes of the events of its streams, as `check` analyses it."""

from abc import ABC, abstractmethod
from functools import cached_property

from pyspark.sql import DataFrame

from millrace_jobs.declared.loader import Declaration, load
from millrace_jobs.query.context import AnalysisContext
from millrace_jobs.transforms import parse


class Transformation(ABC):
    """A declaration with its streams and settings. It needs nothing that only a driver has."""

    def __init__(self, context: AnalysisContext, declaration: Declaration | None = None) -> None:
        """
        Args:
            declaration: by default the one in the job's file.
        """
        self.context = context
        self._given = declaration

    @cached_property
    def declaration(self) -> Declaration:
        return self._given or load(self.context.job, self.context.settings.stream_names)

    @abstractmethod
    def analyse(self) -> None:
        """Raises InvalidJob for a declaration that can't be run."""

    @abstractmethod
    def frame(self, max_offsets: int | None = None) -> DataFrame:
        """What the job's query writes; see `Job.frame`."""


def no_events(context: AnalysisContext) -> list[DataFrame]:
    """An empty batch of each stream's events, to analyse rows with."""
    schemas = (
        ", ".join(f"{name} {kind}" for name, kind in (stream.columns | parse.COORDINATES).items())
        for stream in context.streams
    )
    return [context.spark.createDataFrame([], schema) for schema in schemas]
