"""The one module that reaches behind PySpark's public API, into the JVM.

Spark promises nothing about what these functions touch, so a new version of Spark is tried against
this file first. Objects of the JVM have no types in Python: they are `Any`, here and for callers.
"""

from typing import Any

from pyspark import SparkConf, SparkContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery


def jvm(context: SparkContext) -> Any:
    """The JVM's packages, as attributes: ``jvm(context).org.apache.hadoop.fs.Path``."""
    return context._jvm


def scala_context(context: SparkContext) -> Any:
    """Spark's own context, which manages executors."""
    return context._jsc.sc()


def hadoop_configuration(context: SparkContext) -> Any:
    """The configuration that Spark opens file systems with. It is the session's own, no copy."""
    return context._jsc.hadoopConfiguration()


def java_session(session: SparkSession) -> Any:
    """The JVM's half of a session."""
    return session._jsparkSession


def java_query(query: StreamingQuery) -> Any:
    """The JVM's half of a running query. PySpark renders all reports at once; this one doesn't."""
    return query._jsq


def state_rows(query: StreamingQuery) -> int:
    """Rows in the state stores of a query, as its newest batch has left them so far.

    Spark's report says the same, once the batch is committed.
    """
    execution = java_query(query).streamingQuery().lastExecution()
    return _state_rows(execution.executedPlan()) if execution else 0


def _state_rows(node: Any) -> int:
    metric, children = node.metrics().get("numTotalStateRows"), node.children()
    own = int(metric.get().value()) if metric.isDefined() else 0
    return own + sum(_state_rows(children.apply(n)) for n in range(children.size()))


def analysed_plan(frame: DataFrame) -> Any:
    """The root node of the frame's plan, in which names are resolved and nothing is optimised."""
    return frame._jdf.queryExecution().analyzed()


def cause_of(error: Exception) -> Exception | None:
    """The error of a task, or of planning, by which a query ended; None where Spark names none.

    ``StreamingQuery.exception`` gives Spark's wrapper. PySpark converts the cause, and keeps it to
    itself: Python's ``__cause__`` is empty.
    """
    cause: Exception | None = getattr(error, "_cause", None)
    return cause


def configured(name: str) -> str:
    """A property as spark-submit has it, before there is a session. Raises KeyError without one."""
    SparkContext._ensure_initialized()
    value = SparkConf().get(name)
    if value is None:
        raise KeyError(name)
    return value
