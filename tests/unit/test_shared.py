"""What programs share: a driver's record, the table of progress, buckets, and names."""

import dataclasses
import json
from datetime import date, datetime
from typing import Any, get_type_hints

import pytest
from hypothesis import given
from hypothesis import strategies as st
from millrace_api.outputs import Output as ApiOutput
from millrace_jobs.output import Output
from pydantic import BaseModel

from millrace import config
from millrace.common.paths import REPO
from millrace_shared import job_progress, job_states, names
from millrace_shared.buckets import bucket
from millrace_shared.driver_record import STATES, DriverRecord, leader
from millrace_shared.strict import Misconfigured

RECORD = DriverRecord("application_1_1", "worker-1", "leading", 1.0, jobs={"traffic": "running"})

times = st.floats(0, 2e9)
texts = st.dictionaries(st.text(), st.text())
records = st.builds(
    DriverRecord,
    run=st.text(),
    host=st.text(),
    state=st.sampled_from(STATES),
    since=times,
    standing_by_since=st.none() | times,
    rehearsed_at=st.none() | times,
    jobs=texts,
    troubles=texts,
    failed_since=st.dictionaries(st.text(), times),
    runbooks=texts,
)


@given(records)
def test_a_driver_s_record_is_read_as_it_was_written(record: DriverRecord) -> None:
    assert DriverRecord.parse(record.to_json()) == record


def test_a_record_of_another_version_is_read_as_far_as_it_is_known() -> None:
    older = {"run": "application_1_1", "host": "worker-1", "state": "standby", "since": 1}
    assert DriverRecord.read(older | {"of_a_later_version": []}) == DriverRecord(
        "application_1_1", "worker-1", "standby", 1.0
    )


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"since": "soon"}, "since: 'soon' is no float"),
        ({"jobs": {"traffic": 1}}, "jobs.traffic: 1 is no str"),
        ({"rehearsed_at": "once"}, "rehearsed_at: 'once' is no float"),
        ({"run": None}, "run: None is no str"),
    ],
)
def test_a_record_of_other_types_is_refused(changes: dict[str, Any], message: str) -> None:
    with pytest.raises(Misconfigured, match=message):
        DriverRecord.read(dataclasses.asdict(RECORD) | changes)


@pytest.mark.parametrize("missing", ["run", "host", "state", "since"])
def test_what_every_version_says_must_be_there(missing: str) -> None:
    content = json.loads(RECORD.to_json())
    del content[missing]
    with pytest.raises(Misconfigured, match=f"{missing}: is missing"):
        DriverRecord.read(content)


def test_who_leads() -> None:
    standby = dataclasses.replace(RECORD, state="standby")
    draining = dataclasses.replace(RECORD, state="draining", since=0.0)
    newer = dataclasses.replace(RECORD, since=2.0)
    assert leader([standby]) is None
    assert leader([standby, draining]) is draining
    assert leader([newer, draining, RECORD]) is newer


@pytest.mark.parametrize("shared", [job_progress, job_states])
def test_the_columns_of_a_table_are_those_of_the_schema(shared: Any) -> None:
    schema = (REPO / "spark-jobs" / "schema.cql").read_text()
    _, _, rest = schema.partition(f":keyspace.{shared.TABLE} (")
    lines = rest.partition(");")[0].strip().splitlines()
    assert {line.split()[0] for line in lines} == {*shared.COLUMNS}


def test_a_query_of_job_progress_names_its_columns() -> None:
    assert job_progress.select("job", "batch", where="job = ?") == (
        'SELECT job, "batch" FROM {keyspace}.job_progress WHERE job = ?'
    )
    with pytest.raises(ValueError, match="no column seen"):
        job_progress.select("job", "seen")


# A row that is stored stays in its bucket: these never change.
@pytest.mark.parametrize(
    ("key", "number"),
    [
        (["a"], 12),
        (["/seite/ö"], 244),
        ([200], 199),
        (["spring", 5], 57),
        ([True], 159),
        ([date(2026, 1, 2)], 141),
        ([datetime(2026, 1, 2, 3, 4, 5)], 79),
        ([b"\x00\xff"], 67),
    ],
)
def test_a_key_s_bucket_is_the_same_for_ever(key: list[Any], number: int) -> None:
    assert bucket(key, 256) == number


def test_the_api_finds_a_row_where_the_job_puts_it() -> None:
    facts: dict[str, Any] = {
        "job": "test",
        "table": "job_test",
        "summary": "",
        "window_seconds": 60,
        "slide_seconds": 60,
        "offset_seconds": 0,
        "join_seconds": None,
        "key": {"campaign": "string", "day_of": "date", "status": "int"},
        "values": {},
        "approximate": {},
        "buckets": 16,
    }
    writes = Output(**facts, keep_seconds=1, state=[])
    reads = ApiOutput(**facts)
    row = {"campaign": "spring", "day_of": date(2026, 1, 2), "status": 200}
    start = datetime(2026, 1, 1)
    _, stored_in, *_ = writes.row(row | {"window_start": start}, 1)
    assert reads.bucket(list(row.values())) == stored_in


def fields_of(kind: Any) -> dict[str, Any]:
    """Names of the fields, with those of the records in them."""
    hints = (
        {name: one.annotation for name, one in kind.model_fields.items()}
        if issubclass(kind, BaseModel)
        else get_type_hints(kind)
    )
    return {name: fields_of(hint) if is_record(hint) else None for name, hint in hints.items()}


def is_record(hint: Any) -> bool:
    is_model = isinstance(hint, type) and issubclass(hint, BaseModel)
    return is_model or dataclasses.is_dataclass(hint)


def test_programs_read_the_names_that_the_toolkit_checks() -> None:
    assert fields_of(names.Names) == fields_of(config.Names)
