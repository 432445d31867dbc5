"""How far long work on a host is, by lines of its log, between those of Spark and others."""

import logging

MARK = "progress: "

log = logging.getLogger(__name__)


def tell(said: str) -> None:
    """Logs it for whoever follows; the log's format is the message alone."""
    log.info("%s%s", MARK, said)


def told(line: str) -> str | None:
    """What a line tells; None if it is anybody else's."""
    return line.removeprefix(MARK).rstrip() if line.startswith(MARK) else None
