"""Lookup tables in the running Cassandra: versions, two operators at once, expiry."""

import uuid
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest

from millrace.cluster.tables import LookupVersions, lookup_versions
from millrace.plan import Plan
from millrace.plan.tables import Row
from millrace.table_versions import change, with_row, without_key
from tests.waiting import PATIENCE_SECONDS, wait_until

ROW = {"campaign": "spring", "name": "Frühling", "advertiser": "Acme", "cost_per_click": 0.35}


@pytest.fixture(scope="module")
def versions(plan: Plan) -> Iterator[LookupVersions]:
    with lookup_versions(plan) as found:
        yield found


@pytest.fixture
def name(versions: LookupVersions) -> Iterator[str]:
    """A table that nobody has declared and no job reads."""
    name = f"test_{uuid.uuid4().hex[:8]}"
    yield name
    versions.forget(name)


def test_each_change_is_a_version_that_stays_readable(plan, versions, name):
    campaigns = plan.tables["campaigns"]
    assert versions.newest(name).number == 0
    change(versions, name, campaigns, with_row(campaigns, ROW))
    change(versions, name, campaigns, with_row(campaigns, ROW | {"name": "Spring"}))
    changed = change(versions, name, campaigns, without_key(campaigns, ROW))
    assert changed.number == versions.newest(name).number == 3
    assert [versions.at(name, number).rows for number in (1, 2, 3)] == [
        [ROW],
        [ROW | {"name": "Spring"}],
        [],
    ]
    assert versions.at(name, 4) is None
    assert not versions.add(name, 3, [ROW])


def test_a_version_that_was_replaced_goes_and_the_newest_stays(plan, versions, name):
    campaigns = plan.tables["campaigns"].model_copy(update={"keep_seconds": 1})
    change(versions, name, campaigns, with_row(campaigns, ROW))
    change(versions, name, campaigns, with_row(campaigns, ROW | {"name": "Spring"}))
    wait_until(lambda: versions.at(name, 1) is None, PATIENCE_SECONDS, "the older one has expired")
    assert versions.newest(name).number == 2


def test_operators_at_once_lose_no_change(plan, versions, name):
    campaigns = plan.tables["campaigns"]
    rows = [ROW | {"campaign": f"c{n}"} for n in range(5)]

    def put(row: Row) -> None:
        change(versions, name, campaigns, with_row(campaigns, row))

    with ThreadPoolExecutor(len(rows)) as operators:
        list(operators.map(put, rows))
    assert versions.newest(name).rows == rows
