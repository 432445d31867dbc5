"""A second truth of a SQL job's rows: its query, translated for DuckDB, over the same events.

Counting a job again by its own code on Spark finds what was lost on the way, and no mistake of
Spark's or of ours in what a query means. DuckDB shares neither. SQLGlot
translates what both know; ``window(…)``, which DuckDB doesn't have, becomes the windows that an
event is in.
"""

import re
from collections.abc import Mapping
from string import Template
from typing import Any

import duckdb
import pyarrow as pa
import sqlglot
from sqlglot import exp
from sqlglot.errors import SqlglotError

START = "window_start"
# DuckDB keeps the word for a clause.
_CALL = re.compile(r"\bwindow\s*\(", re.IGNORECASE)
_NAME, _STARTS = "TIME_WINDOW", "__starts"
# Sketches are each engine's own.
_ESTIMATES = (exp.ApproxDistinct, exp.ApproxQuantile)
MACROS = """
CREATE MACRO substring_index(s, d, n) AS
  CASE WHEN n = 1 THEN split_part(s, d, 1) ELSE error('substring_index by ' || n) END;
CREATE MACRO window_starts(t, length, slide, off) AS
  range(
    epoch_us(t) - pmod(epoch_us(t) - off - length, slide) + slide - length,
    epoch_us(t) - pmod(epoch_us(t) - off, slide) + 1,
    slide);
"""


class NotExpressible(Exception):
    """DuckDB can't say what the query says; tells why."""


def rows_of(
    query: str, settings: Mapping[str, Any], events: Mapping[str, pa.Table]
) -> list[dict[str, Any]]:
    """The query's rows over these events: ``window_start``, in naive UTC, and its other columns.

    Args:
        settings: of which the query may name some.
        events: tables by their streams' names; times are in UTC and without a zone.

    Raises NotExpressible.
    """
    text = translated(Template(query).substitute(settings))
    with duckdb.connect() as database:
        database.execute("CREATE MACRO pmod(a, b) AS ((a % b) + b) % b;")
        database.execute(MACROS)
        for name, table in events.items():
            database.register(name, table)
        try:
            rows = database.sql(text).to_arrow_table().to_pylist()
        except duckdb.Error as error:
            raise NotExpressible(f"DuckDB: {str(error).splitlines()[0]}") from error
    return rows


def translated(query: str) -> str:
    """The query in DuckDB's words. Raises NotExpressible."""
    try:
        tree = sqlglot.parse_one(_CALL.sub(f"{_NAME}(", query), read="spark")
    except SqlglotError as error:
        raise NotExpressible(f"SQLGlot: {str(error).splitlines()[0]}") from error
    if found := next(tree.find_all(*_ESTIMATES), None):
        raise NotExpressible(f"{found.sql('spark')} is an estimate of Spark's")
    for quantile in list(tree.find_all(exp.Quantile)):
        quantile.replace(exp.func("quantile_cont", quantile.this, quantile.args["quantile"]))
    for call in list(tree.find_all(exp.Anonymous)):
        if call.name.upper() == _NAME:
            _expand(call)
    inner = tree.sql("duckdb")
    return f'SELECT "window"."start" AS {START}, * EXCLUDE ("window") FROM ({inner})'


def _expand(call: exp.Anonymous) -> None:
    """Each event stands in its select's source once for each window that it is in."""
    time, *spans = call.expressions
    length, slide, offset = _microseconds(spans)
    select = call.find_ancestor(exp.Select)
    if select is None or not isinstance(time, exp.Column):
        raise NotExpressible(f"a window over {time.sql('spark')}")
    source = _source(select, time.table)
    if not any(isinstance(join, exp.Expression) and join.meta.get(_STARTS) for join in [source]):
        name = source.alias_or_name
        starts = f"unnest(window_starts({time.name}, {length}, {slide}, {offset}))"
        inner = exp.select("*", f"{starts} AS {_STARTS}").from_(source.copy())
        wrapped = inner.subquery(name)
        wrapped.meta[_STARTS] = True
        source.replace(wrapped)
    start = exp.column(_STARTS, table=time.table or None)
    at = f"make_timestamp({start.sql('duckdb')})"
    end = f"make_timestamp({start.sql('duckdb')} + {length})"
    call.replace(sqlglot.parse_one(f"{{'start': {at}, 'end': {end}}}", read="duckdb"))


def _source(select: exp.Select, table: str) -> exp.Expression:
    """What the select reads the time from."""
    origin = select.args.get("from_") or select.args.get("from")
    if origin is None:
        raise NotExpressible("a window over nothing")
    sources = [origin.this, *(join.this for join in select.args.get("joins") or [])]
    found = [one for one in sources if not table or one.alias_or_name == table]
    if len(found) != 1:
        raise NotExpressible(f"a window over a time of one of {len(found)} sources")
    return found[0]


def _microseconds(spans: list[exp.Expression]) -> tuple[int, int, int]:
    """Length, slide and offset. Raises NotExpressible for what isn't text, or no span."""
    if not spans or not all(one.is_string for one in spans):
        raise NotExpressible("a window whose length isn't written as text")
    with duckdb.connect() as database:
        found = [
            database.execute("SELECT epoch_us(CAST(? AS INTERVAL))", [one.name]).fetchone()
            for one in spans
        ]
    numbers = [int(one[0]) for one in found if one]
    length, slide, offset = [*numbers, *[numbers[0], 0][len(numbers) - 1 :]][:3]
    return length, slide, offset
