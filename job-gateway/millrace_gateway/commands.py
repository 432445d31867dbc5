"""What operators and deployments call, on any edge host: `job-gateway COMMAND`."""

import argparse
import contextlib
import json
import os
import sys
import time
from collections.abc import Iterator
from dataclasses import asdict

from kazoo.handlers.threading import KazooTimeoutError

from millrace_gateway import compatibility, declarations, recount, upkeep
from millrace_gateway import settings as configuration
from millrace_gateway.decide import Intent, State
from millrace_gateway.progress import UNANSWERED, JobActivity
from millrace_gateway.registry import Registry
from millrace_gateway.settings import Settings
from millrace_gateway.submit import NotDeployed, deployment

POLL_SECONDS = 2
LONGEST = "by default deploy_timeout_seconds of its configuration"


def main() -> None:
    arguments = _parser().parse_args()
    settings = configuration.load()
    try:
        with _registry(settings) as registry:
            arguments.run(registry, settings, arguments)
    except (
        NotDeployed,
        compatibility.Incompatible,
        declarations.DeclarationRejected,
        upkeep.Failed,
    ) as error:
        sys.exit(str(error))
    except recount.Busy as error:
        print(error, file=sys.stderr)
        sys.exit(os.EX_TEMPFAIL)
    except KazooTimeoutError:
        sys.exit(f"ZooKeeper doesn't answer: {settings.zookeeper}")
    except UNANSWERED as error:
        sys.exit(f"Cassandra doesn't answer: {error}")


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="job-gateway", description=__doc__)
    commands = parser.add_subparsers(required=True, metavar="COMMAND")

    status = commands.add_parser("status", help="what runs, and who sees to it, as JSON")
    status.set_defaults(run=_status)

    start = commands.add_parser("start", help="have a deployed version run")
    start.add_argument("application")
    start.add_argument("version")
    start.add_argument("--check", action="store_true", help="say what would change, change nothing")
    start.set_defaults(run=_start)

    suspend = commands.add_parser("suspend", help="let it finish its batches and end")
    suspend.add_argument("application")
    suspend.set_defaults(run=_suspend)

    resume = commands.add_parser("resume", help="have the version that was suspended run again")
    resume.add_argument("application")
    resume.set_defaults(run=_resume)

    versions = commands.add_parser("versions", help="what is deployed on this host, as JSON")
    versions.add_argument("application")
    versions.set_defaults(run=_versions)

    look = commands.add_parser("upkeep", help="cut back what has grown, if that is due")
    look.add_argument(
        "--due", action="store_true", help="have the next look do it: `systemctl start upkeep`"
    )
    look.set_defaults(run=_upkeep)

    again = commands.add_parser(
        "recount", help="a job's rows, counted again from the archive and compared, as JSON"
    )
    again.add_argument("job")
    for end in ("start", "end"):
        again.add_argument(end, help="of the windows' starts, in UTC: 2026-01-01T00:00:00")
    again.add_argument("--generation", help="by default what readers see")
    again.set_defaults(run=_recount)

    past = commands.add_parser(
        "reconcile",
        help="a job's past, counted again beside its stream, as JSON; the question is on stdin",
    )
    past.add_argument("job")
    past.add_argument("--version", help="of the code; by default the one that runs")
    past.set_defaults(run=_reconcile)

    why = commands.add_parser(
        "why", help="which events rows of a job were made of, as JSON; the question is on stdin"
    )
    why.add_argument("job")
    why.set_defaults(run=_why)

    wait_stopped = commands.add_parser("wait-stopped", help="until it has ended")
    wait_stopped.add_argument("application")
    wait_stopped.add_argument("--timeout", type=float, metavar="SECONDS", help=LONGEST)
    wait_stopped.set_defaults(run=_wait_stopped)

    wait = commands.add_parser("wait", help="until a version runs and its jobs write")
    wait.add_argument("application")
    wait.add_argument("version")
    wait.add_argument("--timeout", type=float, metavar="SECONDS", help=LONGEST)
    wait.set_defaults(run=_wait)
    return parser


@contextlib.contextmanager
def _registry(settings: Settings) -> Iterator[Registry]:
    client = settings.connect()
    try:
        yield Registry(client, settings.znodes)
    finally:
        client.stop()
        client.close()


def _status(registry: Registry, settings: Settings, _: argparse.Namespace) -> None:
    contenders = registry.client.Lock(settings.znodes.gateway_lock).contenders()
    applications = {name: registry.status(name) for name in registry.applications()}
    answer = {
        "acting": contenders[0] if contenders else None,
        "standby": contenders[1:],
        "applications": applications,
    }
    print(json.dumps(answer, indent=2))


def _start(registry: Registry, settings: Settings, arguments: argparse.Namespace) -> None:
    application, version = arguments.application, arguments.version
    wanted = Intent("running", version)
    if not arguments.check:
        deployed = deployment(settings.deployments, application, version)
        deployed.check()
        compatibility.check(registry, deployed)
        if registry.intent(application) != wanted:
            declarations.check(deployed)
    _intend(registry, application, wanted, check=arguments.check)


def _suspend(registry: Registry, _: Settings, arguments: argparse.Namespace) -> None:
    _set_state(registry, arguments.application, "stopped")


def _resume(registry: Registry, _: Settings, arguments: argparse.Namespace) -> None:
    _set_state(registry, arguments.application, "running")


def _set_state(registry: Registry, application: str, state: State) -> None:
    current = registry.intent(application)
    if current is None:
        sys.exit(f"{application} was never started; `job-gateway status` shows what was")
    _intend(registry, application, Intent(state, current.version), check=False)


def _versions(registry: Registry, settings: Settings, arguments: argparse.Namespace) -> None:
    """The newest first, by when it came to this host."""
    prefix = f"{arguments.application}-"
    folders = sorted(
        settings.deployments.glob(f"{prefix}*"), key=lambda path: path.stat().st_mtime, reverse=True
    )
    intent = registry.intent(arguments.application)
    answer = {
        "intended": asdict(intent) if intent else None,
        "deployed": [
            {"version": folder.name.removeprefix(prefix), "since": folder.stat().st_mtime}
            for folder in folders
        ],
    }
    print(json.dumps(answer, indent=2))


def _upkeep(registry: Registry, settings: Settings, arguments: argparse.Namespace) -> None:
    if arguments.due:
        registry.put_upkeep(upkeep.due(registry.upkeep(), time.time()))
        print("due: the next look does it, on either edge host; `systemctl start upkeep` is one")
        return
    if recount.at_work([recount.UNIT]):
        print("a recount is at work, and memory is for one: the next look")
        return
    lock = registry.client.Lock(f"{settings.znodes.upkeep}/lock", settings.name)
    if not lock.acquire(blocking=False):
        print("another host is at it")
        return
    yarn = settings.yarn()
    # The session's end, whatever brings it about, gives the lock back.
    print(
        upkeep.look(
            registry, settings, lambda what: upkeep.cut_back(what, settings, yarn.running())
        )
    )


def _recount(registry: Registry, settings: Settings, arguments: argparse.Namespace) -> None:
    what = recount.running_version(registry, settings, arguments.job)
    question = {name: getattr(arguments, name) for name in ("job", "start", "end")}
    if arguments.generation:
        question["generation"] = arguments.generation
    sys.exit(recount.run(what, settings, recount.COUNT, question))


def _reconcile(registry: Registry, settings: Settings, arguments: argparse.Namespace) -> None:
    what = recount.running_version(registry, settings, arguments.job)
    if arguments.version:
        what = deployment(settings.deployments, what.application, arguments.version)
        what.check()
    code = recount.run(what, settings, recount.RECONCILE, {"job": arguments.job})
    if code:
        print("it ended before it was done; the same question goes on from there", file=sys.stderr)
    sys.exit(code)


def _why(registry: Registry, settings: Settings, arguments: argparse.Namespace) -> None:
    what = recount.running_version(registry, settings, arguments.job)
    sys.exit(recount.run(what, settings, recount.EXPLAIN, {"job": arguments.job}))


def _intend(registry: Registry, application: str, intent: Intent, *, check: bool) -> None:
    before = registry.intent(application)
    if before == intent:
        print(f"{application}: unchanged")
        return
    if not check:
        registry.intend(application, intent)
    was = f"{before.state} {before.version}" if before else "nothing"
    print(f"{application}: {was} -> {intent.state} {intent.version}")


def _wait(registry: Registry, settings: Settings, arguments: argparse.Namespace) -> None:
    application, version = arguments.application, arguments.version
    deployed = deployment(settings.deployments, application, version)
    deployed.check()
    limit = _limit(settings, arguments)
    deadline = time.monotonic() + limit
    jobs = json.loads(deployed.config.read_text())["jobs"]
    disabled = [job for job in jobs if registry.is_disabled(job)]
    jobs = [job for job in jobs if job not in disabled]
    with JobActivity(settings.cassandra, jobs, version) as progress:
        while missing := _missing(registry.status(application), version, progress):
            if time.monotonic() > deadline:
                late = f"{application} {version} after {limit:.0f} s: {missing}"
                sys.exit(f"{late}\n{_where_to_look(registry.status(application).get('run'))}")
            time.sleep(POLL_SECONDS)
    without = f" without {', '.join(disabled)}, disabled" if disabled else ""
    print(f"{application}: {version} runs{without}")


def _wait_stopped(registry: Registry, settings: Settings, arguments: argparse.Namespace) -> None:
    deadline = time.monotonic() + _limit(settings, arguments)
    while (status := registry.status(arguments.application)).get("phase") != "stopped":
        if time.monotonic() > deadline:
            sys.exit(f"{arguments.application}: {status.get('phase')}: {status.get('detail')}")
        time.sleep(POLL_SECONDS)


def _limit(settings: Settings, arguments: argparse.Namespace) -> float:
    asked: float | None = arguments.timeout
    return settings.deploy_timeout_seconds if asked is None else asked


def _missing(status: dict[str, str], version: str, progress: JobActivity) -> str:
    """What is still to come; empty when nothing is."""
    if status.get("version") != version or status.get("phase") != "running":
        return f"{status.get('phase', 'no gateway has seen it')}: {status.get('detail', '')}"
    return "; ".join(progress.missing())


def _where_to_look(run: str | None) -> str:
    if run:
        return f"the driver's log: yarn logs -applicationId {run}"
    return "the gateway's log, on the edge host that acts: journalctl -u job-gateway"
