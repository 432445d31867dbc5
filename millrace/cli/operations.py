"""Operations on a stack: check the machine, make the hosts, converge the services, remove all."""

import time
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from infra.progress import Change, stopping
from millrace.cli.playbook import run_playbook
from millrace.cluster import operator_key
from millrace.cluster.keys import made_by, registry
from millrace.common.consent import agree
from millrace.common.console import Console
from millrace.common.errors import OperatorError
from millrace.common.paths import stack_state
from millrace.common.stage import Stage
from millrace.common.tables import Column, Row, Table
from millrace.hosts.roles import ROLES, holder
from millrace.keys import new_secret, with_operator
from millrace.plan import Plan
from millrace.providers import provider_of

if TYPE_CHECKING:
    from pulumi import automation as auto

# What ends something comes first: it mustn't be overlooked.
ORDER = ("remove", "replace", "update", "create")
MOST_NAMES = 6


def check_machine(plan: Plan, console: Console) -> None:
    """Refuses, with numbers, what this machine can't hold; nothing has been made by then."""
    console.print(f"preflight: {provider_of(plan).check_machine(plan)}")


def make_hosts(plan: Plan, console: Console, *, yes: bool = False) -> None:
    """``pulumi up``: makes the hosts, or puts back what drifted.

    Where that may cost money or data, somebody sees first what would change, and agrees to it.
    """
    from infra import automation

    check_machine(plan, console)
    stack = automation.stack(plan.environment, console.print)
    # Before Pulumi runs, as the file travels in its state; and behind what others have put there.
    operator_key.ensure(plan, new_secret())
    if provider_of(plan).PREVIEWS:
        planned = automation.planned(stack, packs=[automation.POLICIES])
        if planned and not yes:
            approve(plan, planned, console)
        for change in in_turn(plan, stopping(planned)):
            change_machine(plan, stack, change, console)
    with Stage(console, "Pulumi makes the hosts") as stage:
        result = automation.up(stack, stage.say)
    changes = ", ".join(f"{count} {kind}" for kind, count in sorted(result.changes.items()))
    console.print(
        f"pulumi: {changes or 'no changes'}; {len(plan.hosts)} hosts, {stage.took} minutes"
    )


def make_services(plan: Plan, console: Console) -> None:
    """Ansible's part of `up`; and the keys know the operator's."""
    run_playbook(plan, "site.yml", [], console)
    now, secret = time.time(), operator_key.secret_of(plan)
    with registry(plan) as keys:
        keys.change(with_operator(plan, secret, now, made_by()))


def in_turn(plan: Plan, changes: Sequence[Change]) -> list[Change]:
    """Sorts machines so that those that lead change last: each role moves once."""
    order = [host.name for host in plan.hosts]
    leading = set(leaders(plan)) if changes else set()
    return sorted(changes, key=lambda one: (one.name in leading, order.index(one.name)))


def leaders(plan: Plan) -> Iterator[str]:
    """Hosts that have a role now; none where nobody says so, as on a cluster that is down."""
    for role in ROLES:
        with suppress(OperatorError):
            yield holder(plan, role).host.name


def change_machine(plan: Plan, stack: "auto.Stack", change: Change, console: Console) -> None:
    """Gives one host its other machine, between two verifications of the whole cluster.

    Raises OperatorError before anything is stopped unless every service and standby is well.
    """
    from infra import automation

    host = change.name
    console.print(f"{host}: its machine changes, before any other's")
    run_playbook(plan, "release-host.yml", ["--extra-vars", f"host={host}"], console)
    automation.up(stack, console.print, only=[change.urn])
    # Others keep what they run with until their own turn: their machines aren't changed yet.
    run_playbook(plan, "site.yml", ["--limit", host], console)
    run_playbook(plan, "verify.yml", [], console)


def approve(plan: Plan, changes: Sequence[Change], console: Console) -> None:
    """Shows the changes. Raises OperatorError unless somebody agrees to them."""
    console.print(changes_view(plan.environment, changes))
    if stops := stopping(changes):
        console.print(
            f"{len(stops)} machines stop for it, one at a time, each while all else is well"
        )
    agree(f"Have {len(changes)} changes made in {plan.environment}?", yes=False)


def changes_view(environment: str, changes: Sequence[Change]) -> Table:
    """Makes a table of changes: those that end something first, what is alike in one line."""
    alike: dict[tuple[str, str, tuple[str, ...]], list[str]] = {}
    for one in sorted(changes, key=lambda one: (ORDER.index(one.what), one.kind, one.name)):
        alike.setdefault((one.what, one.kind, one.properties), []).append(one.name)
    rows = [
        {"what": what, "kind": kind, "names": names, "properties": properties}
        for (what, kind, properties), names in alike.items()
    ]
    columns = (
        Column("what", ""),
        Column("kind", "resource", lambda row: f"{len(row['names'])} × {row['kind']}"),
        Column("names", show=_names),
        Column("properties", "what differs", lambda row: ", ".join(row["properties"])),
    )
    return Table(f"{environment}: what would change", columns, rows)


def _names(row: Row) -> str:
    names = row["names"]
    more = f" and {len(names) - MOST_NAMES} more" if len(names) > MOST_NAMES else ""
    return ", ".join(names[:MOST_NAMES]) + more


def follow_plan(plan: Plan, console: Console, *, yes: bool = False) -> None:
    """Have the stack know the plan, which playbooks read from it.

    Only if they have changed since the last `up`: otherwise a deployment needn't ask Pulumi.
    """
    from infra import automation

    known = automation.outputs(automation.stack(plan.environment)).get("plan_digest")
    if known is None:
        name = plan.environment
        raise OperatorError(f"stack {name} has no hosts yet", f"make up STACK={name}")
    if known != plan.digest:
        console.print("configs/ has changed: the hosts follow first")
        make_hosts(plan, console, yes=yes)


def deploy_jobs(plan: Plan, console: Console, release: str = "", *, yes: bool = False) -> None:
    """The jobs of this checkout, by hand-over where they run already."""
    follow_plan(plan, console, yes=yes)
    arguments = ["-e", f"job_gateway_release={release}"]
    run_playbook(plan, "deploy-jobs.yml", arguments, console)


def going(plan: Plan, *, purge: bool) -> Iterator[str]:
    """Names what `remove_hosts` removes, and what it doesn't though one might think so."""
    hosts = ", ".join(host.name for host in plan.hosts)
    data = "go, with ALL THEIR DATA" if purge else "stay"
    if plan.machines:
        yield f"stay: the machines, and what is on them: {hosts}"
    else:
        yield f"go: the hosts, and the network between them: {hosts}"
        yield f"{data}: the volumes {', '.join(v.name for h in plan.hosts for v in h.volumes)}"
    if plan.aws:
        yield f"{data}: the archive's bucket and its key"
    if purge:
        yield f"go: Pulumi's state of {plan.environment}"
        for kind, paths in own_files(stack_state(plan.environment)).items():
            yield f"go: {kind} on this machine: {', '.join(paths)}"


def own_files(folder: Path) -> dict[str, list[str]]:
    """What a stack's folder holds: each secret and key by its name, records by their folder."""
    secrets = sorted(folder.glob("secrets/*")) + sorted(folder.glob("*key*"))
    others = [path for path in sorted(folder.iterdir()) if path not in secrets]
    found = {
        "secrets": secrets,
        "records": [path for path in others if path.name != "secrets"],
    }
    return {
        kind: [str(path.relative_to(folder.parents[1])) for path in paths]
        for kind, paths in found.items()
        if paths
    }


def remove_hosts(plan: Plan, console: Console, *, purge: bool, yes: bool = False) -> None:
    """``pulumi destroy``: hosts and network go; data volumes only when ``purge``.

    All that goes is named, and somebody has to agree.
    """
    from infra import automation

    for line in going(plan, purge=purge):
        console.print(line, soft_wrap=True)
    agree(f"Remove this from {plan.environment}{', for good' if purge else ''}?", yes=yes)
    stack = automation.stack(plan.environment, console.print)
    with Stage(console, "Pulumi removes the hosts") as stage:
        automation.destroy(stack, purge=purge, provider=plan.provider, report=stage.say)
    kept = "" if purge else "; data volumes stay (PURGE=1 removes them)"
    console.print(f"{plan.environment}: removed in {stage.took} minutes{kept}")
