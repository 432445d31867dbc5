"""Records as tables, on a terminal and in `docs/performance.md`, and as pictures. Pure but `write`.

python -m bench.report            # writes both pages anew, and their pictures
"""

import io
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from typing import Any

from rich.table import Table

from bench.cpu import Roles
from bench.extrapolation import COST, SUSTAINED, by_sustained, rows
from bench.goals import (
    D_STREAMS_PER_CORE,
    WHOLE,
    Compared,
    compared,
    per_event,
    read_goals,
)
from bench.record import RECORDS, Record, name, read_records
from millrace.config import Environment, load_environment
from millrace.drill.tables import load_reasons, load_records
from millrace.plan import Plan, load_plan

DOCUMENT = RECORDS.parent / "performance.md"
RECORDS_PAGE = RECORDS / "README.md"
INTRODUCTION = """# What it costs, and how fast it is

`make bench` measures. `python -m bench.report` generates this page of `bench/goals.yaml`, of the
recorded drills and of the records of the bench. [All records](performance/README.md) have a page
of their own, with what is known of each goal. [bench/README.md](../bench/README.md) says how all is
measured, and what the words mean.
"""
RECORDS_INTRODUCTION = """# All records

`python -m bench.report` generates this page from the records beside it. A figure is the median of
its repetitions, with their range in brackets. [The goals](../performance.md) are what these figures
are held to. [bench/README.md](../../bench/README.md) says how all is measured, and what the words
mean.
"""
# The six pictures of the first page, by their records' names.
FIGURES = (
    "service-cost-200-pages-2-jobs",
    "service-fresh-200-pages-2-jobs",
    "service-fresh-200-pages-2-jobs-after-60-min-idle",
    "engines-ysb",
    "dstreams",
    "modes",
)
LARGEST = "prod"  # whose load nobody has measured
NOTHING = "\nNothing has been recorded yet: `make bench ARGS=--record`, on a quiet machine.\n"
TEXT, BAR, LINE = "#374151", "#7aa6c2", "#cc2936"
NEXMARK = "engines-nexmark-"
GROWN = {"urls": "URLs that came", "state_rows": "rows of state", "state_bytes": "B of state"}
SMALLEST = 0.005  # cores: roles that use less are left out of tables


@dataclass(frozen=True)
class Section:
    """A table; the first column is text, the others are figures. ``bars`` may be drawn."""

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    notes: Sequence[str] = ()
    bars: Mapping[str, Sequence[float]] | None = None
    unit: str = ""


def sections(record: Record) -> list[Section]:
    kind = record["kind"]
    of_kind = "engines" if kind.startswith("engines-") else kind
    return list(KINDS[of_kind](record))


def tables(record: Record) -> list[Table]:
    made = []
    for section in sections(record):
        table = Table(title=section.title, title_justify="left")
        table.add_column(section.columns[0])
        for column in section.columns[1:]:
            table.add_column(column, justify="right")
        for row in section.rows:
            table.add_row(*row)
        table.caption = "\n".join(section.notes)
        made.append(table)
    return made


def first_page(records: Sequence[Record], compared: Sequence[Compared]) -> str:
    """`docs/performance.md`: the goals, what holds back those that are missed, what they say of
    `prod`'s load, and six figures."""
    parts = [INTRODUCTION, _chapter(goals_section(compared))]
    by_name = {name(record): record for record in records}
    if {COST, SUSTAINED} <= by_name.keys():
        environment, plan = load_environment(LARGEST), load_plan(LARGEST)
        cost, sustained = by_name[COST], by_name[SUSTAINED]
        parts.append(_chapter(extrapolation_section(cost, sustained, environment, plan)))
    shown = [by_name[each] for each in FIGURES if each in by_name]
    if shown:
        parts.append("\n## Six figures\n")
    for record in shown:
        section = sections(record)[0]
        picture = _picture(section, record, 0, "performance/")
        parts.append(f"### {section.title}\n\n{picture}\n{provenance(record)}\n")
    return "\n".join(parts) if records else INTRODUCTION + NOTHING


def records_page(records: Sequence[Record], compared: Sequence[Compared]) -> str:
    """`docs/performance/README.md`: every record, and what is known of each goal.

    Nexmark's queries stand together, each record a row.
    """
    nexmark = [record for record in records if record["kind"].startswith(NEXMARK)]
    parts = [RECORDS_INTRODUCTION]
    for record in (record for record in records if record not in nexmark):
        for number, section in enumerate(sections(record)):
            picture = _picture(section, record, number) if section.bars else ""
            parts.append(_chapter(section, picture))
        parts.append(f"\n{provenance(record)}\n")
    if nexmark:
        parts.append(_chapter(queries(nexmark)))
        parts += [_picture(sections(record)[0], record, 0) for record in nexmark]
    known = [f"- *{one.goal.what}*: {one.goal.evidence}" for one in compared if one.goal.evidence]
    if known:
        parts.append("\n## What is known of the goals\n\n" + "\n".join(known) + "\n")
    return "\n".join(parts) if records else RECORDS_INTRODUCTION + NOTHING


def queries(records: Sequence[Record]) -> Section:
    """Records of engines with a query each: a row for each of them, a column for each engine."""
    in_order = sorted(records, key=lambda record: int(_query(record)[1:]))
    runs = [run for record in in_order for run in record["result"]["runs"]]
    engines = list(dict.fromkeys(run["engine"] for run in runs))
    rows = [
        [_query(record), *(_rate_and_right(record, engine) for engine in engines)]
        for record in in_order
    ]
    settings = dict.fromkeys(note for record in in_order for note in _settings(record))
    taken = [
        f"{_query(record)}: {record['result']['about']}. {provenance(record)}"
        for record in in_order
    ]
    columns = ["query", *(f"{engine}, events/s" for engine in engines)]
    return Section("Engines: Nexmark", columns, rows, [*settings, *taken])


def _settings(record: Record) -> list[str]:
    return [f"{engine}: {text}." for engine, text in record["result"]["settings_of"].items()]


def _query(record: Record) -> str:
    return record["kind"].removeprefix(NEXMARK)


def _rate_and_right(record: Record, engine: str) -> str:
    own = [run for run in record["result"]["runs"] if run["engine"] == engine]
    if not own:
        return "–"
    right = sum(run["correct"] for run in own)
    rate = spread([run["events_per_second"] for run in own], 0)
    return f"{rate}, {right} of {len(own)} right"


def provenance(record: Record) -> str:
    machine = record["machine"]
    settings = ", ".join(
        f"{key} {value}" for key, value in record["settings"].items() if key != "jobs"
    )
    quiet = "" if record["result"].get("quiet", True) else "; **others used the machine**"
    return (
        f"{record['taken']}, version `{record['version']}`, {machine['cores']} cores"
        f" ({machine['cpu']}), {machine['memory_gib']} GiB; {settings}{quiet}."
    )


def spread(values: Sequence[float], digits: int = 1) -> str:
    """Median and range."""
    if not values:
        return "–"
    middle = f"{median(values):,.{digits}f}"
    if len(values) == 1:
        return middle
    return f"{middle} ({min(values):,.{digits}f}–{max(values):,.{digits}f})"


def picture(section: Section) -> str:
    """Bars with their ranges, as an SVG document."""
    import matplotlib

    matplotlib.use("Agg")
    from matplotlib import pyplot as plt

    matplotlib.rcParams["svg.hashsalt"] = section.title  # the same document for the same figures
    bars = section.bars or {}
    middles = [median(values) for values in bars.values()]
    spans = [
        [middle - min(values) for middle, values in zip(middles, bars.values(), strict=True)],
        [max(values) - middle for middle, values in zip(middles, bars.values(), strict=True)],
    ]
    figure, axes = plt.subplots(figsize=(9, 0.8 + 0.38 * len(bars)))
    axes.barh(list(bars), middles, xerr=spans, color=BAR, ecolor=LINE, height=0.6)
    axes.invert_yaxis()
    axes.set_xlabel(section.unit, color=TEXT)
    axes.tick_params(length=0, colors=TEXT)
    for side in ("top", "right", "left"):
        axes.spines[side].set_visible(False)
    out = io.StringIO()
    figure.savefig(out, format="svg", bbox_inches="tight", metadata={"Date": None})
    plt.close(figure)
    return out.getvalue()


def picture_name(record: Record, number: int) -> str:
    return f"{name(record)}-{number}.svg"


def _cost(record: Record) -> Iterable[Section]:
    runs, settings = record["result"]["runs"], record["settings"]
    costs = [per_event(run, settings["rate"]) for run in runs]
    observers = Roles.load().observers
    rows, bars = [], {}
    for role in costs[0]:
        whole = role == WHOLE
        idle, loaded = ([_used(run[state], role) for run in runs] for state in ("idle", "loaded"))
        if max(idle + loaded) < SMALLEST:
            continue
        own = [cost.get(role, 0.0) for cost in costs]
        memory = [
            _service_memory(run, observers) if whole else run["memory_mib"].get(role, 0.0)
            for run in runs
        ]
        shown = f"{role} (not of the service)" if role in observers else role
        rows.append([shown, spread(idle, 3), spread(loaded, 3), spread(own), spread(memory, 0)])
        if role not in observers:
            bars[role] = own
    unseen = spread([run["loaded"]["unseen_cores"] for run in runs], 3)
    yield Section(
        f"The service's cost at {settings['rate']:,.0f} events/s, {_of(settings)}",
        ["role", "idle, cores", "loaded, cores", "core-µs per event above idle", "memory, MiB"],
        rows,
        [f"Cores that no process was charged with, loaded: {unseen}."],
        bars,
        "core-µs per event above idle",
    )


def _monitoring(record: Record) -> Iterable[Section]:
    runs = record["result"]["runs"]
    observers = Roles.load().observers
    roles = dict.fromkeys([WHOLE, *(role for run in runs for role in run["with"]["cores"])])
    rows = []
    for role in (role for role in roles if role not in observers):
        watched, unwatched = (
            [_used(run[state], role) for run in runs] for state in ("with", "without")
        )
        if max(watched + unwatched) < SMALLEST:
            continue
        more = [one - other for one, other in zip(watched, unwatched, strict=True)]
        rows.append([role, *(spread(values, 3) for values in (watched, unwatched, more))])
    memory = spread([run["memory_mib"].get("monitoring", 0.0) for run in runs], 0)
    yield Section(
        "What watching costs, idle",
        ["role", "with monitoring, cores", "without", "difference"],
        rows,
        [f"Prometheis, Alertmanagers and exporters together: {memory} MiB."],
    )


def _used(measured: Mapping[str, Any], role: str) -> float:
    """Cores of a role, or of all that are the service's."""
    return measured["service_cores"] if role == WHOLE else measured["cores"].get(role, 0.0)


def _service_memory(run: Mapping[str, Any], observers: Iterable[str]) -> float:
    return sum(mib for role, mib in run["memory_mib"].items() if role not in observers)


def _fresh(record: Record) -> Iterable[Section]:
    runs, settings = record["result"]["runs"], record["settings"]
    percentiles = list(runs[0]["api"]["ms"])
    rows: list[list[str]] = []
    bars: dict[str, list[float]] = {}
    for place, words in (("topic", "results topic"), ("api", "API")):
        values = {each: [run[place]["ms"][each] / 1000 for run in runs] for each in percentiles}
        never = sum(run[place]["never_seen"] for run in runs)
        rows.append([words, *(spread(values[each], 2) for each in percentiles), f"{never:,}"])
        bars |= {f"{words}, {each}": values[each] for each in ("p50", "p99")}
    idle = settings["after_idle"]
    rested = f" right after {idle / 60:g} idle minutes" if idle else ""
    yield Section(
        f"Freshness at {settings['rate']:,.0f} events/s{rested}, {_of(settings)}",
        ["seconds from the scheduled moment until", *percentiles, "never seen"],
        rows,
        [],
        bars,
        "seconds",
    )


def _search(record: Record) -> Iterable[Section]:
    result, settings = record["result"], record["settings"]
    rows = [
        [f"{trial['rate']:,.0f}", *_worst_lags(trial), trial["reason"] or "sustained"]
        for trial in result["trials"]
    ]
    yield Section(
        f"Sustained: {result['sustained_per_second']:,.0f} events/s, {_of(settings)}",
        ["events/s", "archive waits for", "traffic waits for", "verdict"],
        rows,
    )


def _of(settings: Mapping[str, Any]) -> str:
    """What a measurement of the service was one of."""
    return f"{settings['pages']:,} URLs; {', '.join(settings['jobs'])}"


def _worst_lags(trial: Mapping[str, Any]) -> list[str]:
    return [
        f"{max(trial['lags'][job], default=0):,} records at worst" for job in ("archive", "traffic")
    ]


def _engines(record: Record) -> Iterable[Section]:
    runs, settings = record["result"]["runs"], record["settings"]
    engines = list(dict.fromkeys(run["engine"] for run in runs))
    rates = {
        engine: [run["events_per_second"] for run in runs if run["engine"] == engine]
        for engine in engines
    }
    first = median(rates[engines[0]])
    rows = []
    for engine in engines:
        own = [run for run in runs if run["engine"] == engine]
        right = sum(run["correct"] for run in own)
        rows.append(
            [
                engine,
                spread(rates[engine], 0),
                f"{first / median(rates[engine]):.2f}",
                spread([run["core_us_per_event"] for run in own], 2),
                f"{right} of {len(own)}",
            ]
        )
    notes = [f"{record['result']['about']}."] if "about" in record["result"] else []
    notes += _settings(record)
    yield Section(
        f"Engines: {record['kind'].removeprefix('engines-')}, {settings['events']:,} events",
        ["engine", "events/s", f"{engines[0]} is so many times as fast", "core-µs/event", "right"],
        rows,
        notes,
        rates,
        "events/s",
    )


def _dstreams(record: Record) -> Iterable[Section]:
    runs, cores = record["result"]["runs"], record["settings"]["cores"]
    programs = list(dict.fromkeys(run["program"] for run in runs))
    rows: list[list[str]] = []
    bars: dict[str, list[float]] = {}
    for program in programs:
        own = [run for run in runs if run["program"] == program]
        right = f"{sum(run['correct'] for run in own)} of {len(own)}"
        for bound in own[0]["rates"]:
            per_core = [run["rates"][bound] / cores for run in own]
            fetched = [run["rates"][bound] / run["fetch"] for run in own]
            published = D_STREAMS_PER_CORE.get(program)
            times = [rate / published for rate in per_core] if published else []
            shown = f"{program}, < {int(bound) / 1000:g} s"
            figures = [spread(per_core, 0), f"{published:,}" if published else "–"]
            rows.append([shown, *figures, spread(times, 2), spread(fetched, 2), right])
            bars[shown] = per_core
    yield Section(
        "D-Streams' programs: the highest rate whose p99 is below a bound",
        ["program", "lines/s per core", "D-Streams", "times theirs", "of the fetch", "right"],
        rows,
        [
            "A line has 100 bytes. Latency is from the moment it was due until a `read_committed`"
            " reader saw a result with it. Broker, load and reader are on the same cores; *the"
            " fetch* is what Kafka's own reader makes of the same topic, alone."
        ],
        bars,
        "lines/s per core",
    )


def _modes(record: Record) -> Iterable[Section]:
    runs, settings = record["result"]["runs"], record["settings"]
    modes = list(dict.fromkeys(run["mode"] for run in runs))
    percentiles = list(runs[0]["ms"])
    own = {mode: [run for run in runs if run["mode"] == mode] for mode in modes}
    rows = []
    for mode in modes:
        figures = [spread([run["ms"][each] for run in own[mode]]) for each in percentiles]
        counts = [f"{sum(run[what] for run in own[mode]):,}" for what in ("lost", "duplicates")]
        right = sum(run["correct"] for run in own[mode])
        rows.append([mode, *figures, *counts, f"{right} of {len(own[mode])}"])
    late = max(run["load_behind_ms"] for run in runs)
    notes = [f"The load was {late:,.0f} ms late at worst, which is in the figures."]
    notes += [f"{mode}: {text}." for mode, text in record["result"]["about"].items()]
    yield Section(
        f"Latency modes at {settings['rate']:,.0f} events/s: ms from the scheduled moment",
        ["mode", *percentiles, "lost", "duplicates", "right"],
        rows,
        [*_against_real_time(own), *notes],
        {f"{mode}, p99": [run["ms"]["p99"] for run in own[mode]] for mode in modes},
        "ms",
    )


def _against_real_time(runs: Mapping[str, Sequence[Mapping[str, Any]]]) -> Iterable[str]:
    """The others' p99 by real-time mode's, of each repetition: they were taken in turns."""
    for mode in sorted(runs.keys() - {"real-time"}) if "real-time" in runs else []:
        p99, own = ([run["ms"]["p99"] for run in runs[each]] for each in (mode, "real-time"))
        yield f"The p99 of {mode} is {spread(ratios(p99, own))} times that of real-time."


def _transforms(record: Record) -> Iterable[Section]:
    result = record["result"]
    runs, by = result["runs"], record["kind"].removeprefix("transforms-")
    variants = list(dict.fromkeys(run["variant"] for run in runs))
    first, *others = variants
    rows = []
    for step in dict.fromkeys(run["step"] for run in runs):
        costs = {
            variant: [
                run["core_us_per_event"]
                for run in runs
                if run["step"] == step and run["variant"] == variant
            ]
            for variant in variants
        }
        times = [ratios(costs[other], costs[first]) for other in others]
        rows.append([step, *(spread(each, 2) for each in [*costs.values(), *times])])
    notes = ["Each step does what those before it do, and more, but for the last two."]
    if sizes := result.get("value_bytes"):
        said = ", ".join(f"{format} {size:,.1f} B" for format, size in sizes.items())
        notes.append(f"Mean size of an event's value: {said}.")
    notes.append("All found the same." if result["correct"] else "**Results differed.**")
    yield Section(
        f"The jobs' transforms by {by}: core-µs per event",
        ["step", *variants, *(f"{other}, times {first}" for other in others)],
        rows,
        notes,
    )


def _archived(record: Record) -> Iterable[Section]:
    yield Section(
        f"The archive's files: {record['settings']['events']:,} events in one of them",
        ["ids of events", "B in Kafka", "B in the archive", "share"],
        [
            [
                run["ids"],
                f"{run['value_bytes']:,.1f}",
                f"{run['archived_bytes']:,.1f}",
                f"{run['archived_bytes'] / run['value_bytes']:.2f}",
            ]
            for run in record["result"]["runs"]
        ],
    )


def _growth(record: Record) -> Iterable[Section]:
    runs, settings = record["result"]["runs"], record["settings"]
    size = f"{settings['events']:,} events in batches of {settings['batch']:,}"
    notes = [f"{record['result']['about']}."]  # once, for all of them
    for dimension in dict.fromkeys(run["dimension"] for run in runs):
        own = [run for run in runs if run["dimension"] == dimension]
        columns = [dimension, "core-µs/event and job", "times the first", "batch, ms"]
        yield Section(
            f"Growth: {dimension}, {size}", [*columns, *GROWN.values(), "right"], _grown(own), notes
        )
        notes = []


def _grown(runs: Sequence[Mapping[str, Any]]) -> list[list[str]]:
    """A row for each value."""
    by_value: dict[int, list[Mapping[str, Any]]] = {}
    for run in runs:
        by_value.setdefault(run["value"], []).append(run)
    costs = {value: [run["core_us_per_event"] for run in own] for value, own in by_value.items()}
    first = next(iter(costs.values()))
    return [
        [
            f"{value:,}",
            spread(costs[value]),
            spread(ratios(costs[value], first), 2),
            spread([run["batch_ms"] for run in own], 0),
            *(f"{median(run[what] for run in own):,.0f}" for what in GROWN),
            f"{sum(run['correct'] for run in own)} of {len(own)}",
        ]
        for value, own in by_value.items()
    ]


def ratios(values: Sequence[float], to: Sequence[float]) -> list[float]:
    """Of each repetition: they were taken in turns."""
    return [value / other for value, other in zip(values, to, strict=False)]


KINDS: dict[str, Callable[[Record], Iterable[Section]]] = {
    "service-cost": _cost,
    "service-fresh": _fresh,
    "service-search": _search,
    "service-monitoring": _monitoring,
    "engines": _engines,
    "dstreams": _dstreams,
    "modes": _modes,
    "growth": _growth,
    "archived": _archived,
    "transforms-compilers": _transforms,
    "transforms-formats": _transforms,
}


def goals_section(compared: Iterable[Compared]) -> Section:
    """Each goal beside what was measured; below, what holds back those that are missed."""
    rows: list[list[str]] = []
    missed: list[str] = []
    for goal, figure, why in compared:
        met = figure is not None and goal.met(figure)
        if figure is not None and not met:
            missed.append(f"- *{goal.what}*: {why}")
        rows.append([goal.what, goal.bound, f"**{_said(figure)}**" if met else _said(figure)])
    notes = [
        "Bold figures reach their goal. Of drills it is what the fault added to the longest"
        " interruption of results, in the worst run ([how drills are judged](drills/README.md))."
    ]
    notes += ["What holds back the others:\n\n" + "\n".join(missed)] if missed else []
    return Section("The goals, on two cores", ["what", "goal", "measured"], rows, notes)


def extrapolation_section(
    cost: Record, sustained: Record, environment: Environment, plan: Plan
) -> Section:
    """What the environment's load would take of its cores, and that nobody has run it."""
    assert environment.load, "what it is made for"
    rate = environment.load.events_per_second
    measured = cost["settings"]["rate"]
    return Section(
        f"{rate:,.0f} events/s: an extrapolation",
        [
            "part",
            f"core-µs per event above idle, at {measured:,.0f} events/s",
            f"cores for {rate:,.0f} events/s",
            f"`{plan.environment}` has",
            "so many times what it needs",
        ],
        rows(cost, environment, plan, spread),
        [
            f"**The service has not been run at this rate.** Of `{plan.environment}` it is"
            " arithmetic: core-µs per event × events/s ÷ 1,000,000 = cores. The workers' row has"
            " the executors' in it.",
            by_sustained(sustained, rate),
            "What the arithmetic doesn't know: a vCPU of AWS is one of a core's two threads; an"
            " event of `local` crosses no real network, and its disk is the laptop's cache;"
            " drivers' cost is of batches, which don't multiply with events; one partition may have"
            " more events than the others. Disks, network and partitions are"
            " [sized by `millrace capacity`](operating.md#the-cluster), with twice the mean as the"
            " peak.",
        ],
    )


def _said(figure: float | None) -> str:
    if figure is None:
        return "not recorded"
    return f"{figure:,.0f}" if figure >= 1000 else f"{figure:.3g}"


def _picture(section: Section, record: Record, number: int, folder: str = "") -> str:
    return f"![{section.title}]({folder}{picture_name(record, number)})\n"


def _chapter(section: Section, picture: str = "") -> str:
    shown = [picture] if picture else []
    notes = [f"\n{note}\n" for note in section.notes]
    return "\n".join([f"\n## {section.title}\n", *shown, _markdown(section), *notes])


def _markdown(section: Section) -> str:
    marks = ["---"] + ["---:"] * (len(section.columns) - 1)
    return "\n".join(f"| {' | '.join(row)} |" for row in [section.columns, marks, *section.rows])


def pages(records: Sequence[Record]) -> dict[Path, str]:
    """The two pages as they should be; reads goals and drills."""
    each = compared(read_goals(), records, load_records(), load_reasons())
    return {DOCUMENT: first_page(records, each), RECORDS_PAGE: records_page(records, each)}


def write() -> None:
    records = read_records()
    for page, text in pages(records).items():
        page.write_text(text)
    for record in records:
        for number, section in enumerate(sections(record)):
            if section.bars:
                (RECORDS / picture_name(record, number)).write_text(picture(section))


if __name__ == "__main__":
    write()
