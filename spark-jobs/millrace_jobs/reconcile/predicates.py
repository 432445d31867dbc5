"""What an operator's predicate may say of events."""

from pyspark.errors import AnalysisException
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from millrace_jobs.declared.plan.tree import Expression, Node
from millrace_jobs.declared.transformation import schema_of
from millrace_jobs.quarantine.store import in_a_line
from millrace_jobs.query.context import AnalysisContext
from millrace_jobs.reconcile.plan import Refused
from millrace_jobs.recount.generations import is_said_of
from millrace_jobs.spark_internals import analysed_plan, jvm


def require_predicate(context: AnalysisContext, text: str) -> None:
    """Raises Refused unless it is a condition on the fields of one of the job's streams, and always
    the same for the same event."""
    frames = [context.spark.createDataFrame([], schema_of(one)) for one in context.streams]
    try:
        said_of = [frame for frame in frames if is_said_of(text, frame)]
    except AnalysisException as error:
        raise Refused(f"--without '{text}' isn't understood: {in_a_line(error)}") from None
    if not said_of:
        fields = ", ".join(name for one in context.streams for name in one.columns)
        raise Refused(f"--without '{text}' isn't about fields of its events: {fields}")
    for frame in said_of:
        _require_condition(frame, text)


def _require_condition(frame: DataFrame, text: str) -> None:
    first, again = (_analysed(frame, text) for _ in range(2))
    if first.type != "boolean":
        raise Refused(f"--without '{text}' is {first.type}, and no condition")
    patterns = jvm(frame.sparkSession.sparkContext).org.apache.spark.sql.catalyst.trees.TreePattern
    if first.java.containsPattern(patterns.PLAN_EXPRESSION()):
        raise Refused(f"--without '{text}' has a query in it: say the values")
    is_of_now = first.java.containsPattern(patterns.CURRENT_LIKE())
    if is_of_now or not first.is_deterministic or first.sql != again.sql:
        raise Refused(f"--without '{text}' says something else each time; say a fixed time")


def _analysed(frame: DataFrame, text: str) -> Expression:
    plan = Node(analysed_plan(frame.select(F.expr(text).alias("said"))))
    [alias] = plan.expressions
    return alias.source
