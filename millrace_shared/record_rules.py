"""What a record of JSON may be, whatever its stream declares. The collector and the jobs ask for
the same, so what is acknowledged is no dead letter: tests/jobs/test_same_verdict.py.

A record is an object in UTF-8 as RFC 8259 has it. Beyond that:

- A required text has a character, and none of them is NUL, which no name or address has.
- Nothing in it is half a surrogate pair, which is no character of any encoding.
- A time has its zone and up to nine decimals, as languages print it. Microseconds count; what comes
  behind them is cut off.
- Nothing in it is nested more deeply than `MOST_NESTED`, and no number has more than `MOST_DIGITS`.
- Of a name that stands in it twice the last one counts. The collector wants each of them to be
  what is declared; the jobs look at the last one alone, because to find the others would cost them
  a fourth of what it costs to read a record.

The pattern means the same to Python and to Java.
"""

# RFC 3339 as Python's isoformat(), Go's RFC3339Nano and JavaScript's toISOString() print it. Java
# knows no zone that is further away than 18 hours.
TIME = (
    r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}(?:\.[0-9]{1,9})?"
    r"(?:[Zz]|[+-](?:0[0-9]|1[0-7]):[0-5][0-9]|[+-]18:00)"
)
# Of arrays and objects in each other, the record one of them. Half of what Python takes, so that
# its own bound isn't met, wherever it is called.
MOST_NESTED = 500
# Of a number, with those behind the point and of the exponent: what Jackson takes by itself.
MOST_DIGITS = 1000
# A shorter record keeps to both of these bounds: each level is opened and closed.
LONG_BYTES = min(2 * MOST_NESTED, MOST_DIGITS)
