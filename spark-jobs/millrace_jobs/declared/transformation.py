"""What a job of one file makes of the events of its streams, as `check` analyses it."""

from abc import ABC, abstractmethod
from functools import cached_property
from typing import TypedDict

from pyspark.sql import DataFrame
from pyspark.sql.types import StructType

from millrace_jobs.declared.loader import Declaration, load
from millrace_jobs.query.context import AnalysisContext
from millrace_jobs.spark_internals import stream_of_nothing
from millrace_jobs.stream import Stream
from millrace_jobs.transforms import parse


class Read(TypedDict):
    """How a declaration was understood, for people: texts, empty where there is nothing.

    Attributes:
        windows: as ``10m by 1m``.
        join: how far apart are events that are joined.
        key, values: columns with their types.
        state: what is kept, and for how long.
        notes: what is to be known besides.
    """

    windows: str
    join: str
    key: list[str]
    values: list[str]
    state: str
    notes: list[str]


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
    def analyse(self) -> Read:
        """Raises InvalidJob for a declaration that can't be run."""

    @abstractmethod
    def frame(self, max_offsets: int | None = None) -> DataFrame:
        """What the job's query writes; see `Job.frame`."""


def no_events(context: AnalysisContext) -> list[DataFrame]:
    """Each stream's events, of which there are none, to analyse rows with."""
    return [stream_of_nothing(context.spark, schema_of(stream)) for stream in context.streams]


def schema_of(stream: Stream) -> StructType:
    """Of a stream's valid events: what it requires, and where an event stands, is never null."""
    optional = {field.name for field in stream.fields if not field.required}
    columns = (stream.columns | parse.COORDINATES).items()
    schema = StructType.fromDDL(
        ", ".join(
            f"{name} {kind}{'' if name in optional else ' NOT NULL'}" for name, kind in columns
        )
    )
    assert isinstance(schema, StructType)
    return schema
