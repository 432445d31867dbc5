"""`millrace support-bundle`: all that somebody needs who can't look at the cluster, in one file."""

import io
import json
import os
import platform
import tarfile
import time
import zlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from millrace.cluster.facts import Facts, Silent, facts
from millrace.cluster.logs import HostLog, Wanted, reading
from millrace.cluster.prometheus import history
from millrace.cluster.ssh import on_all
from millrace.common.console import Console
from millrace.common.durations import parse_duration
from millrace.common.errors import OperatorError
from millrace.common.paths import stack_name
from millrace.common.tables import in_json
from millrace.common.version import described
from millrace.config.alerts import load_alerts
from millrace.config.panels import load_panels
from millrace.panels import page, scrape_seconds
from millrace.plan import Host, Plan, load_plan
from millrace.setup.artifacts import read_manifest
from millrace.support.logs import moment, parts_of
from millrace.support.newest import Newest
from millrace.support.redact import REMOVED, Redactor, known_secrets
from millrace.support.settings import Settings, load_settings

ENTRY = 1024  # bytes: what a file's name and end take in the bundle, at most
README = "README.txt"


@dataclass
class Bundle:
    """What is in it: path → content; and what isn't, for whoever opens it."""

    redact: Redactor
    files: dict[str, bytes] = field(default_factory=dict)
    missing: list[str] = field(default_factory=list)
    cut: list[str] = field(default_factory=list)

    def add(self, path: str, text: str) -> None:
        """Adds a text, redacted; texts come in by this way only."""
        self.files[path] = self.redact(text).encode(errors="replace")

    def try_to_add(self, path: str, make: Callable[[], str]) -> None:
        """Adds a text if it can be had; whatever the reason, the rest isn't lost with it."""
        try:
            self.add(path, make())
        except Exception as error:
            self.missing.append(f"{path}: {type(error).__name__}: {error}")

    @property
    def size(self) -> int:
        """Bytes that it takes, compressed: a little less in truth."""
        return sum(len(zlib.compress(data, 6)) + ENTRY for data in self.files.values())


def bundle_command(
    file: Annotated[
        Path | None, typer.Argument(help="Where to; else a name with the time.")
    ] = None,
    since: Annotated[str | None, typer.Option(help="How far back: 2h, 1d.")] = None,
) -> None:
    """Put status, plan, logs, figures and configuration, without secrets, into one file.

    millrace support-bundle night.tar.gz --since 8h
    """
    plan, settings, now = load_plan(stack_name()), load_settings(), time.time()
    path = file or Path(f"{plan.cluster}-{datetime.fromtimestamp(now, UTC):%Y%m%dT%H%M%SZ}.tar.gz")
    if path.exists():
        raise OperatorError(f"{path} is there already", "name another file")
    seconds = parse_duration(since) if since else settings["hours"] * 3600
    console = Console(soft_wrap=True)
    with console.status("all hosts are asked"):
        bundle = gather(plan, settings, now - seconds, now)
    write(bundle, path)
    for line in [*bundle.missing, *bundle.cut]:
        console.print(line, style="yellow")
    console.print(f"{path}: {path.stat().st_size / 1e6:.1f} MB, {README} says what is in it")


def gather(plan: Plan, settings: Settings, since: float, until: float) -> Bundle:
    """Everything, of those that answer. Logs come last: they take what room is left."""
    bundle = Bundle(Redactor(known_secrets(plan)))
    bundle.add("plan.json", plan.model_dump_json(indent=2))
    bundle.try_to_add("versions.json", versions)
    bundle.try_to_add("status.json", lambda: _status(plan))
    most = settings["megabytes"] * 10**6
    _add_figures(bundle, plan, settings, since, until, most // 4)
    answering = _add_facts(bundle, plan, most // 8 // len(plan.hosts))
    if answering:
        share = (most - bundle.size) // len(answering) - ENTRY
        _add_logs(bundle, plan, settings, answering, since, until, share)
    bundle.add(README, "\n".join(_readme(plan, bundle, since, until)))
    return bundle


def versions() -> str:
    """Returns the versions of this checkout, of what hosts have from it, and of what asked them."""
    manifest = read_manifest()
    return in_json(
        {
            "toolkit": described(),
            "distributions": {name: entry["version"] for name, entry in manifest.items()},
            "python": platform.python_version(),
            "system": platform.platform(),
        }
    )


def write(bundle: Bundle, path: Path) -> None:
    """Writes one .tar.gz, whole or not at all; only its owner may read it."""
    partial = path.with_name(f".{path.name}.partial")
    folder = path.name.removesuffix(".tar.gz")
    try:
        handle = os.open(partial, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600)
        with (
            open(handle, "wb") as file,
            tarfile.open(fileobj=file, mode="w:gz", compresslevel=6) as tar,
        ):
            for name, data in sorted(bundle.files.items()):
                entry = tarfile.TarInfo(f"{folder}/{name}")
                entry.size, entry.mtime, entry.mode = len(data), int(time.time()), 0o600
                tar.addfile(entry, io.BytesIO(data))
        partial.rename(path)
    except OSError as error:
        partial.unlink(missing_ok=True)
        raise OperatorError(f"{path}: {error.strerror}", "name a file elsewhere") from None


def _add_figures(
    bundle: Bundle, plan: Plan, settings: Settings, since: float, until: float, most: int
) -> None:
    """The operations page's, of the first Prometheus that answers; ``most`` bytes in all."""
    shown = page(plan, load_panels(), load_alerts())
    panels = {
        panel["name"]: panel["queries"] for each in shown["groups"] for panel in each["panels"]
    }
    panels |= {mark["kind"]: [mark] for mark in shown["marks"]}
    share, first = most // len(panels), settings["step_seconds"]
    for host in plan.hosts_of("prometheus_server"):
        try:
            for name, queries in panels.items():
                path, step = f"metrics/{name}.json", first
                while len(found := _history(plan, host, queries, since, until, step)) > share:
                    step *= 2
                    if step > until - since:
                        found = ""
                        break
                if step > first:
                    bundle.cut.append(f"{path}: a point each {step} s" if found else path)
                bundle.add(path, found)
            return
        except OperatorError as error:
            bundle.missing.append(f"metrics: {error.message}")


def _history(
    plan: Plan, host: Host, queries: list[dict[str, str]], since: float, until: float, step: int
) -> str:
    """Returns what Prometheus has of the queries of a panel, each with its expression."""
    scrape = scrape_seconds(plan)
    rate = max(step + scrape, 4 * scrape)  # as Grafana has it
    found = []
    for query in queries:
        expr = query["expr"].replace("$__rate_interval", f"{rate}s")
        expr = expr.replace("$__interval", f"{step}s")
        found.append({"expr": expr, "series": history(plan, host, expr, since, until, step)})
    return json.dumps(found)


def _add_facts(bundle: Bundle, plan: Plan, most: int) -> list[Host]:
    """Adds what hosts are like, and their configuration. Returns the hosts that answer."""

    def ask(host: Host) -> Facts | Silent:
        try:
            return facts(plan, host, most)
        except Silent as silent:
            return silent

    answers = on_all(plan.hosts, ask)
    for name, answer in answers.items():
        if isinstance(answer, Silent):
            bundle.missing.append(f"{name}: {answer}")
            continue
        bundle.add(f"hosts/{name}/facts.txt", answer.facts)
        for path, content in answer.files.items():
            bundle.add(f"hosts/{name}{path}", content)
        bundle.cut += [f"{name}: {path} is too large" for path in answer.left_out]
    return [host for host in plan.hosts if not isinstance(answers[host.name], Silent)]


def _add_logs(
    bundle: Bundle,
    plan: Plan,
    settings: Settings,
    hosts: list[Host],
    since: float,
    until: float,
    share: int,
) -> None:
    """Adds the newest logs of each host, in ``share`` bytes."""
    wanted = Wanted(since, until, parts_of(plan, None), gc=True)

    def keep(log: HostLog) -> Newest:
        newest = Newest(share, bundle.redact)
        for entry in log:
            newest.add(entry.time, f"{moment(entry.time)} {entry.source:16} {entry.text}")
        newest.end()
        return newest

    with reading(plan, hosts, wanted, settings["host_seconds"]) as logs:
        of = {log.host: log for log in logs}
        for name, newest in on_all(hosts, lambda host: keep(of[host.name])).items():
            bundle.files[f"hosts/{name}/log.gz"] = newest.content
            if newest.is_cut:
                first = moment(newest.since) if newest.since else "the end"
                bundle.cut.append(f"hosts/{name}/log.gz: nothing before {first}")
            if of[name].problem:
                bundle.missing.append(f"hosts/{name}/log.gz: {of[name].problem}")


def _readme(plan: Plan, bundle: Bundle, since: float, until: float) -> Iterator[str]:
    yield f"{plan.cluster}, {moment(since)[:19]} to {moment(until)[:19]} (all times are UTC)"
    yield ""
    yield "plan.json             what runs where, with every setting"
    yield "status.json           the state, as `millrace status --json` has it"
    yield "versions.json         of this checkout and of what is on the hosts"
    yield "metrics/              the operations page's figures, a file for each panel of it"
    yield "hosts/HOST/facts.txt  units, disks, memory, processes, heap dumps that are there"
    yield "hosts/HOST/etc        its configuration"
    yield "hosts/HOST/log.gz     what its services logged, in the order of time: zless, zgrep"
    yield ""
    yield f"Secrets that were known, and what looked like one, are {REMOVED}."
    yield ""
    yield "What isn't there:"
    yield from bundle.missing or ["everybody has answered"]
    yield ""
    yield "What was cut:"
    yield from bundle.cut or ["nothing"]
    yield ""


def _status(plan: Plan) -> str:
    from millrace.status.collect import collect
    from millrace.status.verdict import judge

    return in_json(judge(plan, collect(plan)).as_json())
