"""Lookup tables: what a declaration must say, what can be put, and how versions follow."""

import io
import json
import re
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
import yaml
from cassandra import WriteTimeout, WriteType
from cassandra.cluster import Session
from cassandra.protocol import ErrorMessage
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError
from typer.testing import CliRunner

from millrace.cli.tables import app, rows_of
from millrace.cluster.tables import LookupVersions
from millrace.common.console import Console
from millrace.common.errors import OperatorError
from millrace.common.tables import in_json
from millrace.config import Component, Setting, load_component
from millrace.config.lookup_tables import Table, load_tables
from millrace.plan import load_plan
from millrace.plan.tables import Row, TablePlan, plan_table, problems
from millrace.table_versions import (
    Version,
    change,
    encoded,
    key_of,
    parsed,
    row_of,
    with_row,
    without_key,
)
from tests.unit.results import NOON

WHY = {"why": "because it is a test", "source": "a test"}
NUMBER = {"type": "double", "minimum": 0, "maximum": 10, **WHY}
SPRING = ["campaign=spring", "name=Spring", "advertiser=Acme", "cost_per_click=0.35"]
ROW = {"campaign": "spring", "name": "Spring", "advertiser": "Acme", "cost_per_click": 0.35}


def content(**changes: Any) -> dict[str, Any]:
    return {
        "summary": "A test.",
        "key": ["id"],
        "keep_days": {"value": 1, **WHY},
        "table_bytes": {"value": 1000, **WHY},
        "columns": {"id": {"type": "text"}, "price": NUMBER},
    } | changes


@pytest.fixture(scope="module")
def campaigns() -> TablePlan:
    return load_plan("local").tables["campaigns"]


class MemoryVersions:
    """As Cassandra keeps them; ``rival`` adds a version before each of the next additions.

    The first ``unanswered`` additions take effect, and whoever made them isn't told.
    """

    def __init__(self, rivals: int = 0, unanswered: int = 0) -> None:
        self._unanswered = unanswered
        self.kept: dict[int, bytes] = {}
        self.expiring: dict[int, int] = {}
        self._rivals = rivals

    def newest(self, table: str) -> Version:
        number = max(self.kept, default=0)
        return Version(number, json.loads(self.kept.get(number, b"[]")))

    def add(self, table: str, number: int, rows: list[Row]) -> bool:
        if self._rivals:
            self._rivals -= 1
            other = {"campaign": f"rival {self._rivals}", "name": "R", "advertiser": "R"}
            everything = [*self.newest(table).rows, other | {"cost_per_click": 1.0}]
            self.kept[max(self.kept, default=0) + 1] = encoded(everything)
        if number in self.kept:
            return False
        self.kept[number] = encoded(rows)
        self._unanswered -= 1
        return self._unanswered < 0

    def let_expire(self, table: str, version: Version, seconds: int) -> None:
        assert version.number < max(self.kept)
        self.expiring[version.number] = seconds


@pytest.mark.parametrize(
    ("changes", "reason"),
    [
        ({"key": []}, "key"),
        ({"key": ["nobody"]}, "nobody must be"),
        ({"key": ["price"]}, "no double"),
        ({"key": ["id", "id"]}, "twice"),
        ({"key": ["id"], "columns": {"id": {"type": "text"}}}, "none is a fact"),
        ({"columns": {"id": {"type": "text", "required": False}, "price": NUMBER}}, "required"),
        ({"columns": {"id": {"type": "text", "maximum": 5}, "price": NUMBER}}, "they alone"),
        ({"columns": {"id": {"type": "text"}, "n": NUMBER | {"minimum": None}}}, "they alone"),
        ({"columns": {"id": {"type": "text"}, "n": NUMBER | {"why": None}}}, "why and source"),
        ({"columns": {"id": {"type": "text"}, "n": NUMBER | {"minimum": 11}}}, "above maximum"),
        (
            {"columns": {"id": {"type": "text"}, "n": NUMBER | {"type": "long", "maximum": 2**63}}},
            "wider than type long",
        ),
        ({"colour": "red"}, "colour"),
    ],
)
def test_a_table_that_could_not_be_looked_up_is_refused(
    changes: dict[str, Any], reason: str
) -> None:
    with pytest.raises(ValidationError, match=reason):
        Table.model_validate(content(**changes))


def test_a_folder_of_jobs_has_tables_of_its_own(tmp_path: Path) -> None:
    (tmp_path / "tables").mkdir()
    (tmp_path / "tables" / "prices.yaml").write_text(yaml.safe_dump(content()))
    assert load_tables([tmp_path]).keys() == load_tables().keys() | {"prices"}
    (tmp_path / "tables" / "campaigns.yaml").write_text(yaml.safe_dump(content()))
    with pytest.raises(OperatorError, match="rename yours"):
        load_tables([tmp_path])


@pytest.mark.parametrize(
    ("value", "reason"),
    [(["campaigns"], None), (["compaigns"], "no table compaigns"), ("campaigns", "is no list")],
)
def test_a_job_names_tables_that_are_declared(value: Any, reason: str | None) -> None:
    spark: Component = load_component("spark")
    job = {"tables": Setting(value=value, **WHY)}
    spark = spark.model_copy(update={"settings": spark.settings | {"mine": job}})
    found = list(problems(load_tables(), spark))
    assert found == [] if reason is None else reason in found[0]


def test_a_row_is_read_with_its_types(campaigns: TablePlan) -> None:
    assert row_of("campaigns", campaigns, SPRING) == ROW
    assert key_of("campaigns", campaigns, SPRING[:1]) == {"campaign": "spring"}


@pytest.mark.parametrize(
    ("assignment", "reason"),
    [
        ("cost_per_click=a lot", "'a lot' is no double"),
        ("cost_per_click=-1", "-1 is not between 0 and 1000"),
        ("cost_per_click=nan", "nan is not between"),
        ("cost_per_click=inf", "inf is not between"),
        ("cost_per_clik=1", "no column cost_per_clik; there are campaign, name"),
        ("name=Summer", "name is given twice"),
        ("Spring", "'Spring' is no column=value"),
    ],
)
def test_what_is_no_row_is_refused(campaigns: TablePlan, assignment: str, reason: str) -> None:
    rest = SPRING[:-1] if assignment.startswith("cost") else SPRING
    with pytest.raises(OperatorError, match=reason):
        row_of("campaigns", campaigns, [*rest, assignment])


@pytest.mark.parametrize("text", ["campaign=", "campaign= ", "campaign=a\x00b", "campaign=\udcff"])
def test_a_text_can_be_shown(campaigns: TablePlan, text: str) -> None:
    with pytest.raises(OperatorError, match="campaign: "):
        row_of("campaigns", campaigns, [text, *SPRING[1:]])


def test_everything_that_is_wrong_is_said_at_once(campaigns: TablePlan) -> None:
    with pytest.raises(OperatorError) as error:
        row_of("campaigns", campaigns, ["name=Spring", "cost_per_click=x", "colour=red"])
    said = error.value.message
    assert len(said.splitlines()) == 4
    for problem in ("campaign is missing", "advertiser is missing", "'x' is no double", "colour"):
        assert problem in said


@given(st.integers() | st.floats(), st.sampled_from(["integer", "double"]))
def test_a_number_is_within_its_range_or_refused(value: float, kind: str) -> None:
    rule = plan_table(
        Table.model_validate(
            content(columns={"id": {"type": "text"}, "n": NUMBER | {"type": kind}})
        ),
        "small",
    ).columns["n"]
    try:
        found = parsed(rule, str(value))
    except ValueError:
        assert not 0 <= value <= 10 or (kind == "integer" and isinstance(value, float))
    else:
        assert 0 <= value <= 10
        assert found == value


def test_versions_follow_each_other_and_old_ones_expire(campaigns: TablePlan) -> None:
    versions = MemoryVersions()
    first = change(versions, "campaigns", campaigns, with_row(campaigns, ROW))
    second = change(versions, "campaigns", campaigns, with_row(campaigns, ROW | {"name": "S."}))
    third = change(versions, "campaigns", campaigns, without_key(campaigns, ROW))
    assert [v.number for v in (first, second, third)] == [1, 2, 3]
    assert [len(v.rows) for v in (first, second, third)] == [1, 1, 0]
    assert json.loads(versions.kept[1]) == [ROW]
    assert versions.expiring == dict.fromkeys((1, 2), 30 * 86400)


def test_a_change_that_changes_nothing_makes_no_version(campaigns: TablePlan) -> None:
    versions = MemoryVersions()
    for _ in range(2):
        assert change(versions, "campaigns", campaigns, with_row(campaigns, ROW)).number == 1


def test_two_operators_do_not_lose_each_others_change(campaigns: TablePlan) -> None:
    versions = MemoryVersions(rivals=2)
    changed = change(versions, "campaigns", campaigns, with_row(campaigns, ROW))
    assert changed.number == 3
    assert {row["campaign"] for row in changed.rows} == {"spring", "rival 0", "rival 1"}


def test_a_change_that_was_not_answered_is_made_once(campaigns: TablePlan) -> None:
    versions = MemoryVersions(unanswered=1)
    changed = change(versions, "campaigns", campaigns, with_row(campaigns, ROW))
    assert (changed.number, changed.rows) == (1, [ROW])
    assert list(versions.kept) == [1]


@pytest.mark.parametrize("takes_effect", [True, False])
@pytest.mark.parametrize(
    "answer",
    [
        WriteTimeout("CAS operation timed out", write_type=WriteType.CAS),
        ErrorMessage(0x1700, "CAS operation result is unknown", None),
    ],
)
def test_a_compare_and_set_of_unknown_outcome_is_looked_for(
    campaigns: TablePlan, answer: Exception, takes_effect: bool
) -> None:
    session = Unanswering(answer, takes_effect)
    versions = LookupVersions(cast("Session", session), "insights")
    changed = change(versions, "campaigns", campaigns, with_row(campaigns, ROW))
    assert (changed.number, changed.rows) == (1, [ROW])
    assert session.inserts == 2 - takes_effect


class Unanswering:
    """A session whose first compare-and-set has this answer."""

    def __init__(self, answer: Exception, takes_effect: bool) -> None:
        self.inserts = 0
        self._answer = answer
        self._takes_effect = takes_effect
        self._rows: list[Any] = []

    def prepare(self, query: str) -> str:
        return query

    def execute(self, query: str, values: tuple[Any, ...]) -> list[Any]:
        if query.startswith("SELECT"):
            return self._rows
        self.inserts += 1
        if self.inserts > 1 or self._takes_effect:
            _, number, rows, since = values
            self._rows = [SimpleNamespace(version=number, rows=rows, since=since)]
        if self.inserts == 1:
            raise self._answer
        return [SimpleNamespace(applied=True)]


def test_who_never_gets_a_turn_is_told(
    campaigns: TablePlan, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("millrace.table_versions.PAUSE_SECONDS", 0)
    with pytest.raises(OperatorError, match="others change it"):
        change(MemoryVersions(99), "campaigns", campaigns, with_row(campaigns, ROW))


def test_a_table_stays_small(campaigns: TablePlan) -> None:
    versions = MemoryVersions()
    long = ROW | {"name": "x" * campaigns.table_bytes}
    with pytest.raises(OperatorError, match="it may have 262144"):
        change(versions, "campaigns", campaigns, with_row(campaigns, long))
    assert versions.kept == {}


@given(st.lists(st.tuples(st.sampled_from("abc"), st.booleans(), st.integers(0, 9))))
def test_a_version_holds_the_last_row_of_each_key(edits: list[tuple[str, bool, int]]) -> None:
    table = plan_table(Table.model_validate(content()), "small")
    versions = MemoryVersions()
    expected: dict[str, Row] = {}
    for key, is_put, price in edits:
        row: Row = {"id": key, "price": float(price)}
        if is_put:
            change(versions, "t", table, with_row(table, row))
            expected[key] = row
        else:
            change(versions, "t", table, without_key(table, row))
            expected.pop(key, None)
    assert versions.newest("t").rows == [expected[key] for key in sorted(expected)]
    assert versions.expiring.keys() == versions.kept.keys() - {max(versions.kept, default=0)}


@pytest.mark.parametrize(
    "command",
    [["put", "nothing", "a=b"], ["put", "campaigns", "a=b"], ["remove", "campaigns", "x"]],
)
def test_what_is_wrong_is_said_before_anything_is_connected(
    command: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MILLRACE_STACK", "local")
    result = CliRunner().invoke(app, command)
    assert isinstance(result.exception, OperatorError)
    assert "Cassandra" not in str(result.exception)


def test_a_version_is_shown_by_its_columns(campaigns: TablePlan) -> None:
    found = rows_of("campaigns", campaigns, Version(3, [ROW, {"campaign": "older"}], NOON))
    assert json.loads(in_json(found.data)) == {
        "table": "campaigns",
        "version": 3,
        "since": "2026-01-01T12:00:00Z",
        "rows": [ROW, dict.fromkeys(campaigns.columns) | {"campaign": "older"}],
    }
    page = io.StringIO()
    Console(file=page).print(found)
    head, first, second = [
        [cell.strip() for cell in re.split("[│┃]", line)[1:-1]]
        for line in page.getvalue().splitlines()
        if line.startswith(("│", "┃"))
    ]
    assert head == list(campaigns.columns)
    assert (first[3], second[3]) == ("0.35", "")
