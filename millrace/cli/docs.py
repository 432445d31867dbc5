"""What the documents repeat of `configs/`: generated, so that it can't differ.

A block between ``<!-- generated: NAME -->`` and ``<!-- end -->`` is replaced by what NAME makes, in
the README and in each page of `docs/`. Some pages are made as a whole.
"""

import ast
import re
import tomllib
from collections.abc import Sequence
from pathlib import Path

from infra.aws.permissions import by_service
from millrace.cli.alert_docs import alerts_page
from millrace.cli.job_facts import PROGRAM, Facts, all_jobs, facts_of
from millrace.cli.network_docs import network_page
from millrace.cli.pictures import everywhere, layers_svg, own_units, topology_svg
from millrace.cli.retention import retention_table
from millrace.cli.role_docs import role_readmes
from millrace.cli.sizes import sizes_table
from millrace.common.errors import NotPassedError, OperatorError
from millrace.common.exits import Exit
from millrace.common.paths import REPO
from millrace.config import environment_names, load_component
from millrace.config.alerts import load_alerts
from millrace.config.load import read_yaml, validate
from millrace.config.model import Model
from millrace.drill.availability import availability_tables, load_faults
from millrace.drill.guarantees import guarantees_table
from millrace.drill.report import Audit
from millrace.drill.runbook import INDEX, RUNBOOKS, load_operations, load_runbooks
from millrace.drill.tables import (
    PAGE,
    drills_page,
    drills_table,
    load_reasons,
    load_records,
    runbooks_index,
)
from millrace.plan import Plan, load_plan
from millrace.plan.reachability import load_steps
from millrace.setup.versions import load_versions

README = REPO / "README.md"
ARCHITECTURE = REPO / "docs" / "architecture.md"
ALERTS = REPO / "docs" / "alerts.md"
NETWORK = REPO / "docs" / "network.md"
KILLED = "driver-killed"  # the drill, and its variants, that tell of every job
QUERIES = REPO / "docs" / "queries.yaml"
TOPOLOGY = REPO / "docs" / "topology.svg"
LAYERS = REPO / "docs" / "layers.svg"
BLOCK = re.compile(r"(<!-- generated: (?P<name>\w+) -->\n).*?(<!-- end -->)", re.DOTALL)


def write_docs(check: bool = False) -> None:
    """Writes the generated parts; with ``check`` refuses if they aren't up to date."""
    plan = load_plan("local")
    runbooks, records = load_runbooks(), load_records()
    pages = [README, *sorted((REPO / "docs").glob("*.md"))]
    wanted = (
        {page: filled(page, page.read_text(), plan) for page in pages}
        | {
            TOPOLOGY: topology_svg(plan),
            LAYERS: layers_svg(_layers()),
            NETWORK: _network_page(),
            ALERTS: alerts_page(plan, load_alerts(), runbooks, load_operations(), records),
            PAGE: drills_page(records, runbooks, load_reasons()),
            RUNBOOKS / INDEX: runbooks_index(runbooks, records, load_operations()),
        }
        | role_readmes()
    )
    stale = [path for path, text in wanted.items() if not path.exists() or path.read_text() != text]
    if check and stale:
        names = ", ".join(str(path.relative_to(REPO)) for path in stale)
        raise NotPassedError(
            f"{names}: not what configs/, runbooks/, docs/drills/ and ansible/roles/ say",
            "run `millrace docs`",
        )
    for path in stale:
        path.write_text(wanted[path])


def _network_page() -> str:
    """Makes the page of every environment but the test suite's own."""
    plans = [load_plan(name) for name in environment_names() if name != "test"]
    components = {name: load_component(name) for name in plans[0].services}
    return network_page(components, plans, load_steps())


def filled(page: Path, text: str, plan: Plan) -> str:
    """The page's text with every block made anew. Raises OperatorError if one has no such name."""
    make = {
        "topology": _topology_table,
        "versions": _versions_table,
        "drills": lambda _: drills_table(load_records(), load_runbooks(), page),
        "guarantees": lambda _: guarantees_table(load_records(), page),
        "rooms": _rooms_table,
        "jobs": _jobs_table,
        "retention": retention_table,
        "sizes": lambda _: sizes_table(),
        "exits": _exits_table,
        "queries": _queries,
        "verdicts": _verdicts_table,
        "availability": _availability,
        "permissions": _permissions_table,
    }

    def made(block: re.Match[str]) -> str:
        if block["name"] not in make:
            raise OperatorError(
                f"{page.relative_to(REPO)}: nothing makes a block '{block['name']}'",
                f"the blocks are: {', '.join(sorted(make))}",
            )
        return block[1] + make[block["name"]](plan) + block[3]

    return BLOCK.sub(made, text)


def _jobs_table(plan: Plan) -> str:
    """Makes the table of every job that ships, whether the stack runs it or not."""
    rows = [
        "| job | kind | streams | state | outputs | route | audit "
        "| lost, duplicated, wrong after a killed driver |",
        "|---|---|---|---|---|---|---|---|",
    ]
    drills = [drill for name, drill in sorted(load_records().items()) if name.startswith(KILLED)]
    audits = [drill.audit for drill in drills if drill.audit]
    for job in (facts_of(plan, name) for name in all_jobs(plan)):
        link = f"[{job.name}](../{job.file.relative_to(REPO)})"
        what = f"{link}: {job.summary.rstrip('.')}"
        state = [f"windows of {' and '.join(job.windows)}"] if job.windows else []
        state += ["none: in real time"] if job.real_time else []
        state += [f"watermark {job.watermark}"] if job.watermark else []
        streams = [*job.streams, *(f"facts of {table}" for table in job.tables)]
        cells = [
            what,
            job.kind,
            ", ".join(streams),
            ", ".join(state) or "–",
            *(
                ", ".join(f"`{name}`" for name in names) or "–"
                for names in (job.outputs, job.routes)
            ),
            f"`{job.audit}`" if job.audit else "–",
            audited(job, audits),
        ]
        rows.append(f"| {' | '.join(cells)} |")
    return "\n".join(rows) + "\n"


def audited(job: Facts, audits: Sequence[Audit]) -> str:
    """Returns what the first audit that looked at a job found, by the drill's own records first.

    Events are those of the jobs that are programs.
    """
    for audit in audits:
        if found := audit.jobs.get(job.name):
            return f"{found.lost}, {found.duplicated}, {found.wrong} of {found.rows:,} rows"
        if audit.acknowledged and job.kind == PROGRAM and job.audit:
            return (
                f"{audit.lost}, {audit.duplicated}, {audit.wrong} of {audit.acknowledged:,} events"
            )
    return "–"


def _rooms_table(_: Plan) -> str:
    """The layers that the linter holds the rooms to, from the top, each in its own words."""
    layers = _layers()
    rows = ["| layer | room | what it is |", "|---:|---|---|"]
    for depth, layer in enumerate(layers):
        rows += [
            f"| {len(layers) - depth} | `millrace/{name}` | {text} |"
            for name in layer
            if (text := _purpose(name))
        ]
    return "\n".join(rows) + "\n"


def _layers() -> list[list[str]]:
    """The toolkit's rooms, the highest first; those of one layer don't know each other."""
    contracts = tomllib.loads((REPO / "pyproject.toml").read_text())["tool"]["importlinter"]
    layers = next(c["layers"] for c in contracts["contracts"] if c["type"] == "layers")
    return [re.findall(r"\w+", layer) for layer in layers]


def _purpose(name: str) -> str:
    """The first sentence that a room, or a module beside the rooms, says of itself."""
    for path in (REPO / "millrace" / name / "__init__.py", REPO / "millrace" / f"{name}.py"):
        if path.exists():
            said = ast.get_docstring(ast.parse(path.read_text())) or ""
            return said.partition("\n\n")[0].replace("\n", " ").partition(". ")[0].rstrip(".:")
    return ""


class Question(Model):
    """Of docs/queries.yaml: ``refused`` is how the refusal begins, where there is one."""

    ask: str
    query: str
    streams: list[str] | None = None
    refused: str | None = None
    instead: str | None = None


class Questions(Model):
    queries: list[Question]


def _questions() -> list[Question]:
    return validate(Questions, read_yaml(QUERIES), QUERIES).queries


def _verdicts_table(_: Plan) -> str:
    """Each question, and what the analysis says of it."""
    rows = ["| question | the analysis says | instead |", "|---|---|---|"]
    for one in _questions():
        verdict = f"refused: *{one.refused} …*" if one.refused else "taken"
        rows.append(f"| {one.ask} | {verdict} | {one.instead or ''} |")
    return "\n".join(rows) + "\n"


def _queries(_: Plan) -> str:
    """Each question with its query, and what the analysis says of it."""
    parts = []
    for one in _questions():
        refused = f"**Refused**: *{one.refused} …* {one.instead}"
        verdict = refused if one.refused else "**Taken.**"
        parts.append(f"### {one.ask}\n\n{verdict}\n\n```sql\n{one.query.strip()}\n```\n")
    return "\n" + "\n".join(parts) + "\n"


def _availability(_: Plan) -> str:
    faults = load_faults()
    return availability_tables(faults, load_plan(faults.environment), load_records())


def _exits_table(_: Plan) -> str:
    rows = ["| exit code | when |", "|---:|---|"]
    return "\n".join([*rows, *(f"| {exit.value} | {exit.when} |" for exit in Exit)]) + "\n"


def _permissions_table(_: Plan) -> str:
    rows = ["| service | actions |", "|---|---|"]
    rows += [f"| `{service}` | {', '.join(actions)} |" for service, actions in by_service().items()]
    return "\n".join(rows) + "\n"


def _topology_table(plan: Plan) -> str:
    rows = ["| group | hosts | services |", "|---|---|---|"]
    for group in dict.fromkeys(host.group for host in plan.hosts):
        hosts = [host for host in plan.hosts if host.group == group]
        rows.append(f"| {group} | {len(hosts)} | {', '.join(own_units(plan, hosts[0]))} |")
    units = ", ".join(service.unit for service in everywhere(plan))
    return "\n".join([*rows, f"| all of them | {len(plan.hosts)} | {units} |"]) + "\n"


def _versions_table(plan: Plan) -> str:
    rows = ["| distribution | version |", "|---|---|"]
    versions = load_versions()
    pinned = {name: d.version for name, d in versions.distributions.items()}
    rows += [f"| {name} | {version} |" for name, version in pinned.items()]
    return "\n".join(rows) + "\n"
