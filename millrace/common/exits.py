"""How a command ends, for scripts: the one list of exit codes. docs/operating.md has it as well."""

from enum import IntEnum


class Exit(IntEnum):
    """An exit code; ``when`` says when a command ends with it."""

    when: str

    def __new__(cls, code: int, when: str) -> "Exit":
        member = int.__new__(cls, code)
        member._value_ = code
        member.when = when
        return member

    OK = 0, "What was asked for is done, or is so."
    FAILED = 1, "The operation failed or was refused; the message says what to do next."
    USAGE = 2, "The command line is wrong: `--help` says what can be typed."
    NOBODY = 3, "No host has the role now, as while one is elected (`millrace who`)."
    UNHEALTHY = 4, "The cluster answers, and is degraded or down."
    UNREACHABLE = 5, "Nobody answers, or too few do to know the state."
    NOT_PASSED = (
        6,
        "A check ended, and found something: an audit, a drill, the ledger, `jobs check`.",
    )
    STOPPED = 130, "Ctrl-C ended it."
