"""The status again and again: drawn in place on a terminal, a line for each change elsewhere."""

import time
from collections.abc import Callable, Iterator
from typing import NoReturn, TypeAlias

from rich.console import RenderableType
from rich.live import Live
from rich.text import Text

from millrace.common.console import Console, as_text
from millrace.common.errors import OperatorError
from millrace.common.tables import shown, time_of
from millrace.status.render import MARKS, render
from millrace.status.verdict import HEALTHY, Component, Status

EVERY_SECONDS = 5.0  # between two looks, each of which takes some
# The status, or why it couldn't be asked for.
Look: TypeAlias = Status | OperatorError


def watch(
    ask: Callable[[], Status],
    cluster: str,
    console: Console,
    pause: Callable[[float], object] = time.sleep,
    now: Callable[[], float] = time.time,
) -> NoReturn:
    """Shows what is asked, every few seconds, until Ctrl-C."""
    if console.is_terminal:
        with Live(console=console, screen=True, auto_refresh=False) as live:
            while True:
                live.update(_drawn(_look(ask), cluster), refresh=True)
                pause(EVERY_SECONDS)
    before: Look | None = None
    while True:
        found = _look(ask)
        for line in changes(before, found):
            console.print(Text.assemble((shown(time_of(now())), "dim"), " ", line), soft_wrap=True)
        before = found
        pause(EVERY_SECONDS)


def changes(before: Look | None, now: Look) -> Iterator[Text]:
    """What differs from the look before; at first, and after silence, all that isn't healthy."""
    if isinstance(now, OperatorError):
        if not (isinstance(before, OperatorError) and before.message == now.message):
            yield as_text(now.message, "magenta")
        return
    if not isinstance(before, Status) or before.state != now.state:
        yield Text.assemble("the cluster: ", _marked(now.state))
    known = {c.name: c.state for c in before.components} if isinstance(before, Status) else {}
    for component in now.components:
        if component.state != known.get(component.name, HEALTHY):
            yield Text.assemble(f"{component.name}: ", _marked(component.state), _why(component))
    alerts = {alert.alert for alert in before.alerts or ()} if isinstance(before, Status) else set()
    firing = {alert.alert for alert in now.alerts or ()}
    yield from (as_text(f"{alert} fires", "red") for alert in sorted(firing - alerts))
    yield from (as_text(f"{alert} has resolved", "green") for alert in sorted(alerts - firing))


def _look(ask: Callable[[], Status]) -> Look:
    try:
        return ask()
    except OperatorError as error:
        return error


def _drawn(found: Look, cluster: str) -> RenderableType:
    if isinstance(found, OperatorError):
        return as_text(found.message, "magenta")
    return render(found, cluster)


def _marked(state: str) -> Text:
    symbol, colour = MARKS[state]
    return Text(f"{symbol} {state}", colour)


def _why(component: Component) -> str:
    reasons = component.problems + component.unanswered
    return f": {'; '.join(reasons)}" if reasons else ""
