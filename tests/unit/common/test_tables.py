"""A table is data first: what people see and what programs read are made of the same rows."""

import io
import json
from datetime import UTC, datetime, timedelta, timezone
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.common.console import Console
from millrace.common.tables import Answer, Column, Row, Table, in_json, shown, tell, upright

NOON = datetime(2026, 1, 1, 12, tzinfo=UTC)
ROWS: list[Row] = [
    {"job": "traffic", "behind": 1234, "since": NOON, "hosts": ["a", "b"], "zone": "a", "x": 1},
    {"job": "archive", "behind": None, "since": None, "hosts": [], "zone": "b", "x": 2},
]
COLUMNS = (
    Column("job", "the job", lambda row: row["job"].upper()),
    *map(Column, ("behind", "since", "hosts")),
)


def printed(view: object) -> str:
    file = io.StringIO()
    Console(file=file, width=200).print(view)
    return file.getvalue()


def cells(text: str) -> list[list[str]]:
    lines = [line for line in text.splitlines() if line.startswith(("│", "┃"))]
    return [
        [cell.strip(" ┃│") for cell in line[1:-1].replace("┃", "│").split("│")] for line in lines
    ]


def test_rows_are_shown_by_their_columns_each_value_in_its_usual_form() -> None:
    table = Table("jobs", COLUMNS, ROWS, foot={**ROWS[0], "job": "all"})
    assert cells(printed(table)) == [
        ["the job", "behind", "since", "hosts"],
        ["TRAFFIC", "1,234", "2026-01-01 12:00:00 UTC", "a, b"],
        ["ARCHIVE", "–", "–", "–"],
        ["ALL", "1,234", "2026-01-01 12:00:00 UTC", "a, b"],
    ]


def test_programs_get_every_value_of_the_same_rows(capsys: pytest.CaptureFixture[str]) -> None:
    table = Table("jobs", COLUMNS, ROWS, foot={**ROWS[1], "job": "all"})
    tell(Answer.of("a note", jobs=table), as_json=True)
    assert json.loads(capsys.readouterr().out) == {
        "jobs": [
            {**ROWS[0], "since": "2026-01-01T12:00:00Z"},
            ROWS[1],
        ],
        "jobs_total": {**ROWS[1], "job": "all"},
    }
    tell(Answer.of("a note", jobs=table), as_json=False)
    assert capsys.readouterr().out.endswith("a note\n")


def test_a_line_is_drawn_where_a_value_changes() -> None:
    def lines(by: str | None) -> int:
        return printed(Table("jobs", COLUMNS, ROWS, by=by)).count("├")

    assert (lines(None), lines("zone")) == (0, 1)


def test_one_row_stands_upright() -> None:
    assert cells(printed(upright("load", {"in_doubt": 1234, "run": "x"}))) == [
        ["in doubt", "1,234"],
        ["run", "x"],
    ]


@pytest.mark.parametrize(
    ("value", "form", "for_programs"),
    [
        (None, "–", None),
        ("", "–", ""),
        (True, "yes", True),
        (1234567, "1,234,567", 1234567),
        (1234.5, "1,234.5", 1234.5),
        (
            NOON.astimezone(timezone(timedelta(hours=5))),
            "2026-01-01 12:00:00 UTC",
            "2026-01-01T12:00:00Z",
        ),
        (("a", 1), "a, 1", ["a", 1]),
        (Path("/tmp/x"), "/tmp/x", "/tmp/x"),
        ("\x1b[2J", "\x1b[2J", "\x1b[2J"),
    ],
)
def test_a_value_has_a_form_for_people_and_one_for_programs(
    value: object, form: str, for_programs: object
) -> None:
    assert shown(value) == form
    assert json.loads(in_json([value])) == [for_programs]


@given(st.text())
def test_json_commands_no_terminal(text: str) -> None:
    assert in_json({text: text}).replace("\n", "").isprintable()


def test_what_has_no_form_in_json_is_a_mistake_that_shows() -> None:
    with pytest.raises(TypeError, match="no form in JSON"):
        in_json({"x": object()})
