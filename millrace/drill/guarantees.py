"""What the service promises, beside what drills measured: the front page's table. Pure."""

from collections.abc import Mapping, Sequence
from pathlib import Path

from millrace.drill.report import Report
from millrace.drill.runbook import Plane
from millrace.drill.tables import Records, against_goal, all_drills, link_to

# What a user of the service may meet → the drills that make it happen.
GUARANTEES: Mapping[str, tuple[str, ...]] = {
    "Any host is lost": (
        "kafka-host-lost",
        "cassandra-node-lost",
        "namenode-host-lost",
        "driver-host-lost",
        "edge-host-lost",
    ),
    "The leading driver is killed": ("driver-killed",),
    "A whole zone is lost": ("zone-lost",),
    "The jobs are upgraded under load": ("upgrade",),
    "Poisoned records arrive": ("poison-message", "poison-value", "poison-code"),
    "Readers ask for too much": ("readers-storm",),
}
# What users notice of the service; a component's own planes matter to its operators.
NOTICED = {Plane.PRODUCE: "events in", Plane.PROCESS: "new results", Plane.READ: "reads"}


def guarantees_table(records: Records, page: Path) -> str:
    """A row for each guarantee, and one for what all audits found, as the table stands in ``page``.

    Of several drills, and of what users notice, a row has the one to which its fault added most.
    """
    rows = [
        "| what happens | longest interruption added / goal (floor), s | lost | duplicated |",
        "|---|---|---:|---:|",
    ]
    for what, names in GUARANTEES.items():
        reports = [records[name] for name in names if name in records]
        cells = (
            [_interruption(reports, page), *_counts(reports)]
            if reports
            else ["not recorded", "", ""]
        )
        rows.append(f"| {what} | {' | '.join(cells)} |")
    audited = list(records.values())
    events = sum(report.audit.acknowledged or 0 for report in audited if report.audit)
    every = f"[All {len(audited)} drills]({all_drills(page)}), {events:,} acknowledged events"
    return "\n".join([*rows, f"| {every} | – | {' | '.join(_counts(audited))} |"]) + "\n"


def _interruption(reports: Sequence[Report], page: Path) -> str:
    longest = [
        (report.added[plane].seconds, number, plane)
        for number, report in enumerate(reports)
        for plane in NOTICED
        if plane in report.added
    ]
    _, number, plane = max(longest)
    report = reports[number]
    return link_to(report, page, f"{NOTICED[plane]} {against_goal(report, plane)}")


def _counts(reports: Sequence[Report]) -> tuple[str, str]:
    """Lost and duplicated; a drill without an audit has shown neither."""
    audits = [report.audit for report in reports if report.audit]
    if len(audits) < len(reports):
        return "not audited", "not audited"
    lost, duplicated = sum(one.lost for one in audits), sum(one.duplicated for one in audits)
    return str(lost), str(duplicated)
