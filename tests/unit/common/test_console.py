"""What came from outside is printed as text: it ends no command, and commands no terminal."""

import io
import re
import sys
import unicodedata
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from rich.cells import cell_len
from rich.console import Group, RenderableType
from rich.panel import Panel
from rich.table import Table
from rich.text import Text

from infra.progress import Change
from millrace.audit.report import Plane, Report, report_view
from millrace.cli import commands
from millrace.cli.dead_letters import Reason, outcomes_table, reasons_table, records_table
from millrace.cli.insights import insights_view
from millrace.cli.jobs import Running, jobs_view
from millrace.cli.operations import changes_view
from millrace.cli.playbook import Play, show
from millrace.cli.tables import rows_of
from millrace.cluster.dead_letters import Quarantined
from millrace.cluster.logs import Entry
from millrace.common.console import DECEIVING, Console, as_text, visible
from millrace.common.errors import OperatorError
from millrace.common.tables import Answer
from millrace.ledger.advertise import campaigns_view
from millrace.plan import load_plan
from millrace.setup.steps import Progress, _table
from millrace.support.logs import show as show_logs
from millrace.table_versions import Version
from tests.unit.results import NOON, Api

PLAN = load_plan("local")
WIDE = 1_000  # so that nothing is wrapped
STYLES = re.compile(r"\x1b\[[\d;]*m")
CURSOR = re.compile(r"\x1b\[(\?25[lh]|2K|1A)|\r")

# What a terminal, rich's markup and its emoji codes obey, far more often than by chance.
PIECES = st.sampled_from(
    [
        *("[", "]", "[/b]", "[/]", "[link=http://x]", "[red]", "\\[", ":smile:", "/a", "é", "漢"),
        *("\x1b[2J", "\x1b]8;;x\x07", "\x9b1m", "\r", "\n", "\t", "\x00", "\x7f"),
        *("\u202e", "\ud800", "\u2028"),
    ]
)
OUTSIDE = st.lists(PIECES | st.characters() | st.text(max_size=5), max_size=12).map("".join)
WORST = "/a[/b][link=http://x]\x1b[2J\x9b\u202e\ud800:smile:"


def of_any_text(test: Callable[..., None]) -> Callable[..., None]:
    """Runs it with some strings from outside, the worst first."""
    some = settings(max_examples=30, deadline=None)(given(outside=OUTSIDE)(test))
    return example(outside=WORST)(example(outside="[/x]")(some))


def printed(print_to: Callable[[Console], object], *, terminal: bool = False) -> str:
    file = io.StringIO()
    colours = "truecolor" if terminal else None
    print_to(Console(file=file, width=WIDE, force_terminal=terminal, color_system=colours))
    return file.getvalue()


def require_text(print_to: Callable[[Console], object], outside: str) -> None:
    """It is shown, in full, and nothing else than text with colours."""
    plain = printed(print_to)
    for shown in (plain, CURSOR.sub("", STYLES.sub("", printed(print_to, terminal=True)))):
        controls = {c for c in shown if unicodedata.category(c) in ("Cc", "Cs") and c != "\n"}
        assert not controls
        assert not {*shown} & {*DECEIVING}
        shown.encode()
    for line in visible(outside).split("\n"):
        assert with_room(line) in with_room(plain)


def with_room(text: str) -> str:
    """What takes room: of a modifier without what it modifies, rich shows nothing in a table."""
    return "".join(c for c in text if not c.isspace() and cell_len(c))


def lookup(outside: str) -> Answer:
    name, table = next(iter(PLAN.tables.items()))
    row = dict.fromkeys(table.columns, outside)
    return rows_of(name, table, Version(1, [row]))  # type: ignore[arg-type]


def audited(outside: str) -> Answer:
    plane = Plane("cassandra")
    plane.find("lost", [outside])
    return report_view(Report([outside], 1, 0, 0, [plane], notes=[outside]))


def step(outside: str) -> Table:
    return _table({outside: Progress(state="running", said=outside, started=1.0)})


VIEWS: dict[str, Callable[[str], RenderableType]] = {
    "a string": str,
    "a text": lambda outside: as_text(outside, "bold"),
    "a cell": lambda outside: a_table(cell=outside),
    "a header": lambda outside: a_table(header=outside),
    "a title": lambda outside: a_table(title=outside),
    "a group in a panel": lambda outside: Panel(Group(outside, a_table(cell=outside))),
    "insights": lambda url: insights_view(Api(url)),  # type: ignore[arg-type]
    "reasons": lambda text: reasons_table([Reason(text, text, 1, NOON, NOON)], 7),
    "records": lambda text: records_table(text, [Quarantined("job", text, text, NOON, NOON)]),
    "outcomes": lambda t: outcomes_table(t, [{"id": t, "what": t, "counted": False}]),
    "a lookup table": lookup,
    "jobs": lambda state: jobs_view(
        PLAN, dict.fromkeys(PLAN.jobs, Running(state, "worker-1", state, behind=1)), state
    ),
    "changes": lambda t: changes_view(t, [Change("create", t, t, (t,), t)]),
    "an audit": audited,
    "campaigns": lambda t: campaigns_view({"from": t, "to": t, "campaigns": {t: {"clicks": 1}}}),
    "a step": step,
}


def a_table(title: str = "", header: str = "", cell: str = "") -> Table:
    table = Table(title=title, title_justify="left")
    table.add_column(header)
    table.add_row(cell)
    return table


@pytest.mark.parametrize("view", VIEWS.values(), ids=VIEWS)
@of_any_text
def test_a_view_shows_what_came_from_outside_as_text(
    view: Callable[[str], RenderableType], outside: str
) -> None:
    require_text(lambda console: console.print(view(outside)), outside)


@of_any_text
def test_a_text_that_is_made_without_care_is_text_all_the_same(outside: str) -> None:
    shown = printed(lambda console: console.print(Text(outside), Text.assemble((outside, "red"))))
    assert not {c for c in shown if unicodedata.category(c) == "Cc" and c != "\n"}


@of_any_text
def test_a_play_is_shown_as_text(outside: str) -> None:
    events: list[dict[str, Any]] = [
        {"event": "play", "name": outside},
        {"event": "task", "name": outside},
        {"event": "result", "host": outside, "status": "failed", "message": outside},
    ]
    require_text(lambda console: show(events, console, "site.yml"), outside)
    require_text(lambda console: console.print(Play(outside).line()), outside)


@of_any_text
def test_a_log_is_shown_as_text_and_no_line_of_it_passes_for_an_entry(outside: str) -> None:
    entries = [Entry(0.0, "kafka-1", "kafka-broker", "error", outside)]
    require_text(lambda console: show_logs(PLAN, entries, console), outside)
    first, *others = printed(lambda c: show_logs(PLAN, entries, c)).rstrip("\n").split("\n")
    assert first.startswith("1970-01-01 00:00:00.000 kafka-1")
    assert all(line.startswith("    ") or not line.strip() for line in others)


@of_any_text
def test_what_is_under_way_is_shown_as_text(outside: str) -> None:
    def under_way(console: Console) -> None:
        with console.status(outside) as status:
            status.update(outside)
            console.print(outside)
            console.rule(Text(outside))
            console.rule(outside.replace("\n", " "))

    require_text(under_way, outside)


@of_any_text
def test_an_error_is_shown_as_text(outside: str) -> None:
    def fail(**_: object) -> None:
        raise OperatorError(outside, outside)

    file = io.StringIO()
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(commands, "app", fail)
        patched.setattr(sys, "stderr", file)
        with pytest.raises(SystemExit):
            commands.main()
    assert file.getvalue() == (
        f"error: {visible(outside)}\nnext:  {visible(outside)}\n" if outside else ""
    )


def test_control_characters_have_pictures_and_lines_stay_lines() -> None:
    assert visible("a\x1b[31m\x00\r\x7f\x9b\u202e\ud800\n\tb") == "a␛[31m␀␍␡���\n    b"
    assert visible("[/b] :smile: 漢") == "[/b] :smile: 漢"


def test_nobody_turns_markup_on() -> None:
    shown = printed(lambda console: console.print("[bold]x[/]", markup=True, emoji=True))
    assert shown == "[bold]x[/]\n"


def test_a_log_is_as_wide_as_a_report_needs() -> None:
    assert Console(file=io.StringIO()).width == 120
    assert Console(file=io.StringIO(), width=50).width == 50
