"""The table ``job_progress``: how far each job is. The jobs write it, every other program reads it.

spark-jobs/schema.cql has the columns' types, and what they mean. The audit has its own copy of what
it reads: it is to be independent of the programs that it audits.
"""

TABLE = "job_progress"
COLUMNS = (
    "job",
    "checkpoint",
    "epoch",
    '"batch"',
    "watermark",
    "max_event_time",
    "input_rows_per_second",
    "updated",
    "version",
)


def select(*columns: str, where: str = "") -> str:
    """A query, in which ``{keyspace}`` is to be filled in. Raises ValueError for no such column.

    Args:
        columns: without quotes; all of them where none is named.
        where: of the key, as CQL.
    """
    named = {column.strip('"'): column for column in COLUMNS}
    if unknown := [column for column in columns if column not in named]:
        raise ValueError(f"{TABLE} has no column {', '.join(unknown)}")
    chosen = [named[column] for column in columns] or COLUMNS
    rest = f" WHERE {where}" if where else ""
    return f"SELECT {', '.join(chosen)} FROM {{keyspace}}.{TABLE}{rest}"
