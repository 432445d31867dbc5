"""What the programs of the bench have in common: where they print, and how they end."""

import signal
import sys
from collections.abc import Callable

from bench.record import Record, keep
from bench.report import tables
from millrace.common.console import Console
from millrace.common.errors import OperatorError

console = Console(soft_wrap=True)


def run_program(main: Callable[[list[str]], None]) -> None:
    """The program on its arguments; says what to do, and exits with a code, if it can't go on."""
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # what was started is ended, too
    try:
        main(sys.argv[1:])
    except OperatorError as error:
        console.print(error.message, style="red")
        if error.hint:
            console.print(error.hint)
        sys.exit(error.exit_code)


def publish(record: Record, public: bool) -> None:
    """Prints it and keeps it, for the documents if it is public."""
    for table in tables(record):
        console.print(table)
    console.print(keep(record, public))
