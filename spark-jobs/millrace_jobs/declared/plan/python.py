"""Functions in Python, which executors can't run."""

from pyspark import SparkContext

from millrace_jobs.declared.plan.refused import Refused
from millrace_jobs.declared.plan.tree import Node
from millrace_jobs.spark_internals import jvm


def refuse_python(plan: Node, context: SparkContext) -> None:
    """Raises Refused, with the place of the first one.

    A process of Python stands beside each task, and an executor that all jobs share has no memory
    for it: one function that grows would end the tasks of all.
    """
    pattern = jvm(context).org.apache.spark.sql.catalyst.trees.TreePattern.PYTHON_UDF()
    if not plan.java.containsPattern(pattern):
        return
    found = [
        expression
        for node in plan.walk()
        for top in node.expressions
        for expression in top.walk()
        if expression.kind.startswith("Python")
    ]
    raise Refused(
        "executors run no function in Python; say it with functions of pyspark.sql.functions",
        *found[:1],
    )
