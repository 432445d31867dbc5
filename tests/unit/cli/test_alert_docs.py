"""The table of alerts tells what drills measured of each, and by which drill."""

import pytest

from millrace.cli.alert_docs import alerts_page
from millrace.config.alerts import load_alerts
from millrace.drill.report import AlertOutcomes, Audit, Fired, Machine, Report, Run
from millrace.drill.runbook import load_operations, load_runbook, load_runbooks
from millrace.plan import load_plan

PLAN, ALERTS, RUNBOOKS = load_plan("local"), load_alerts(), load_runbooks()


def record(drill: str, **fired: tuple[float, float | None]) -> dict[str, Report]:
    told = {
        name: Fired(severity="warning", after_seconds=after, resolved_after_seconds=resolved)
        for name, (after, resolved) in fired.items()
    }
    made = Report(
        name=drill,
        title=drill,
        faults=[1],
        date="2026-01-02 03:04Z",
        stack="local",
        machine=Machine(cores=2, memory_gib=16),
        rate=2000,
        goal={},
        baseline={},
        runs=[Run(gaps={}, alerts=AlertOutcomes(fired=told))],
        failures=[],
        audit=Audit(lost=0, duplicated=0, wrong=0),
    )
    return {drill: made}


def cells(alert: str, records: dict[str, Report]) -> list[str]:
    page = alerts_page(PLAN, ALERTS, RUNBOOKS, load_operations(), records)
    row = next(line for line in page.splitlines() if line.startswith(f"| {alert} "))
    return row.strip("| ").split(" | ")[4:7]


@pytest.mark.parametrize(
    ("records", "measured"),
    [
        ({}, ["–", "–"]),
        (record("datanode-lost", DataNodeDown=(24.4, 0)), ["24", "0"]),
        (record("datanode-lost", DataNodeDown=(24.4, None)), ["24", "–"]),
        (record("zone-lost", DataNodeDown=(30, 2)), ["30 (`zone-lost`)", "2"]),
        (
            record("zone-lost", DataNodeDown=(30, 2))
            | record("datanode-lost", DataNodeDown=(9, 3)),
            ["9", "3"],
        ),
    ],
)
def test_its_own_drill_tells_or_else_another(records, measured):
    assert cells("DataNodeDown", records)[1:] == measured


def test_of_several_drills_the_slowest_tells():
    records = record("cassandra-node-lost", CassandraNodeDown=(40, 3))
    records |= record("cassandra-node-frozen", CassandraNodeDown=(50, 0))
    assert cells("CassandraNodeDown", records)[1:] == ["50", "3"]


def test_why_a_drill_fires_nothing_stands_beside_it():
    drill, *_ = cells("JobVersionOutdated", {})
    assert drill.startswith(f"`upgrade` (silent: {load_runbook('upgrade').about.silent})")
    assert cells("DiskFillingUp", {})[0] == "`disk-full` (in dev, staging)"
