"""The one module that reaches behind PySpark's public API, into the JVM.

Spark promises nothing about what these functions touch, so a new version of Spark is tried against
this file first. Objects of the JVM have no types in Python: they are `Any`, here and for callers.
"""

from collections.abc import Iterable
from typing import Any

from py4j.protocol import Py4JError
from pyspark import SparkConf, SparkContext
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql.streaming import StreamingQuery
from pyspark.sql.types import StructType

MOST_TASKS = 1000  # of a stage, whose errors are looked at


def jvm(context: SparkContext) -> Any:
    """The JVM's packages, as attributes: ``jvm(context).org.apache.hadoop.fs.Path``."""
    return context._jvm


def scala_context(context: SparkContext) -> Any:
    """Spark's own context, which manages executors."""
    return context._jsc.sc()


def has_stopped(context: SparkContext) -> bool:
    """Whether Spark, or its JVM, has ended: nothing can be asked of it any more."""
    try:
        return bool(scala_context(context).isStopped())
    except (AttributeError, OSError, Py4JError):  # no context, no connection, no JVM
        return True


def cancel_group(context: SparkContext, group: str) -> None:
    """Cancel the group's Spark jobs, and those that it begins from now on.

    PySpark's `cancelJobGroup` knows only the former: a batch that is between two goes on.
    """
    scala_context(context).cancelJobGroupAndFutureJobs(group)


def task_errors(context: SparkContext, group: str) -> list[tuple[tuple[int, int], str]]:
    """By which errors tasks of the group's running Spark jobs have failed so far.

    Each error comes with its task's stage and number. Several attempts are several errors.
    """
    tracker, store = context.statusTracker(), scala_context(context).statusStore()
    errors: list[tuple[tuple[int, int], str]] = []
    for job in tracker.getActiveJobsIds():
        of_group = store.job(job).jobGroup()
        if not of_group.isDefined() or of_group.get() != group:
            continue
        info = tracker.getJobInfo(job)
        for stage in info.stageIds if info else ():
            errors += _errors_of(store, stage, tracker.getStageInfo(stage))
    return errors


def _errors_of(store: Any, stage: int, info: Any) -> list[tuple[tuple[int, int], str]]:
    if not info:
        return []  # it has yet to begin
    errors = []
    for attempt in range(info.currentAttemptId + 1):
        tasks = store.taskList(stage, attempt, MOST_TASKS).iterator()
        while tasks.hasNext():
            task = tasks.next()
            if (message := task.errorMessage()).isDefined():
                errors.append(((stage, int(task.index())), str(message.get())))
    return errors


def hadoop_configuration(context: SparkContext) -> Any:
    """The configuration that Spark opens file systems with. It is the session's own, no copy."""
    return context._jsc.hadoopConfiguration()


def java_session(session: SparkSession) -> Any:
    """The JVM's half of a session."""
    return session._jsparkSession


def java_query(query: StreamingQuery) -> Any:
    """The JVM's half of a running query. PySpark renders all reports at once; this one doesn't."""
    return query._jsq


def set_read_limit(context: SparkContext, query: StreamingQuery, records: int) -> bool:
    """The next batch that the query constructs has at most so many records of each source, and
    none comes while it is 0. False while the query doesn't know its sources yet.

    The option of a source, such as Kafka's maxOffsetsPerTrigger, is read once, as the query starts;
    from then on its engine asks this map, before each batch, and all sources at once.
    """
    engine = query._jsq.streamingQuery()
    limits = engine.uniqueSources()
    sources = limits.keysIterator()
    if not sources.hasNext():
        return False
    limit = jvm(context).org.apache.spark.sql.connector.read.streaming.ReadLimit.maxRows(records)
    while sources.hasNext():
        limits = limits.updated(sources.next(), limit)
    getattr(engine, "uniqueSources_$eq")(limits)
    return True


def put_pool(context: SparkContext, name: str, share: int) -> None:
    """A pool of the fair scheduler whose tasks get so many shares of the places where others wait,
    too. Without it Spark makes one with a share of 1 when the pool's first job comes."""
    scheduler = jvm(context).org.apache.spark.scheduler
    root = scala_context(context).taskScheduler().rootPool()
    if root.getSchedulableByName(name) is None:
        fair = scheduler.SchedulingMode.FAIR()
        root.addSchedulable(scheduler.Pool(name, fair, 0, share))


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


def scala_object(context: SparkContext, name: str) -> Any:
    """The one instance of an ``object`` of Scala's, by its full name."""
    found = jvm(context)
    for part in f"{name}$".split("."):
        found = getattr(found, part)
    return getattr(found, "MODULE$")


def stream_of_nothing(session: SparkSession, schema: StructType) -> DataFrame:
    """A stream without a source, to analyse queries with. What its schema says is never null, its
    plan says, too; a batch would lose its watermark, and an empty one fold away when optimised."""
    context, java = session.sparkContext, java_session(session)
    row = jvm(context).java.lang.Class.forName("org.apache.spark.sql.catalyst.InternalRow")
    nothing = java.sparkContext().emptyRDD(
        scala_object(context, "scala.reflect.ClassTag").apply(row)
    )
    frame = java.internalCreateDataFrame(nothing, java.parseDataType(schema.json()), True)
    return DataFrame(frame, session)


def frame_of(session: SparkSession, plan: Any) -> DataFrame:
    """A frame of a plan whose names are resolved."""
    dataset = jvm(session.sparkContext).org.apache.spark.sql.classic.Dataset
    return DataFrame(dataset.ofRows(java_session(session), plan), session)


def scala_sequence(context: SparkContext, items: Iterable[Any]) -> Any:
    """A sequence of Scala's, of objects of the JVM."""
    found = jvm(context).java.util.ArrayList()
    for item in items:
        found.add(item)
    return jvm(context).scala.jdk.javaapi.CollectionConverters.asScala(found).toSeq()


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
