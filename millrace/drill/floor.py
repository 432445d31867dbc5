"""The floor: the longest interruptions with nothing broken, which no fault is to blame for. Pure.

A run measures its own before its fault. Older records have none: they are judged by the recorded
control drill, which is the same load and the same probes without a fault.
"""

from collections.abc import Mapping

from millrace.drill.report import Gaps, Report, worst_of

CONTROL = "no-fault"


def judged_by_recorded_floor(records: Mapping[str, Report]) -> dict[str, Report]:
    """The records; each run without a floor of its own has the recorded one."""
    return {
        name: on_floor(record, recorded_floor(record, records)) for name, record in records.items()
    }


def on_floor(report: Report, floor: Gaps | None) -> Report:
    """The report with this floor in those runs that have none."""
    runs = [
        run if run.floor is not None else run.model_copy(update={"floor": floor})
        for run in report.runs
    ]
    return report.model_copy(update={"runs": runs})


def recorded_floor(report: Report, records: Mapping[str, Report]) -> Gaps | None:
    """The longest gaps of all runs of the control drill of the same variant and kinds of cores.

    None if there is none, and for a control drill, which is the floor. Where a record doesn't name
    its cores, nothing speaks against the other's.
    """
    if not report.faults:
        return None
    controls = [
        control
        for name, control in records.items()
        if name.startswith(CONTROL) and report.name.endswith(name.removeprefix(CONTROL))
    ]
    # The longest name is that of the variant; the plain one's end is that of every name.
    control = max(controls, key=lambda control: len(control.name), default=None)
    if control is None or not _same_kinds(report, control):
        return None
    return worst_of([run.gaps for run in control.runs])


def _same_kinds(report: Report, control: Report) -> bool:
    kinds, known = set(report.machine.cpus), set(control.machine.cpus)
    return not known or kinds <= known
