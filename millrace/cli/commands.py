"""What can be typed: `millrace`'s commands, by what they are for.

Each is imported when it is called: a client of Kafka or Cassandra takes longer than the question.
"""

import os
import sys
import traceback
from importlib import import_module
from typing import Annotated, Any, NamedTuple

import typer
from rich.text import Text
from typer.core import TyperCommand, TyperGroup

from millrace.common.console import Console, as_text, write
from millrace.common.errors import OperatorError
from millrace.common.exits import Exit
from millrace.common.paths import DEFAULT_STACK


class Place(NamedTuple):
    """A function, or a `typer.Typer` of further commands; ``summary`` is what it says of itself."""

    module: str
    name: str
    summary: str


CLUSTER, HOSTS = "millrace.cli.cluster_commands", "millrace.hosts.commands"
PLAN, MAINTAINERS = "millrace.cli.plan_commands", "millrace.cli.maintainer_commands"

COMMANDS = {
    "Cluster": {
        "demo": Place(
            "millrace.cli.demo",
            "demo_command",
            "Go from nothing to live insights: all steps below, traffic, and its results.",
        ),
        "setup": Place(
            CLUSTER,
            "setup",
            "Install what this machine lacks: engines, base image, distributions.",
        ),
        "preflight": Place(
            CLUSTER,
            "preflight",
            "Check that this machine can make and hold the stack's cluster, and say what is"
            " missing.",
        ),
        "up": Place(
            CLUSTER,
            "up",
            "Make the hosts (Pulumi) and their services (Ansible); again, heal what drifted.",
        ),
        "status": Place(
            CLUSTER,
            "status",
            "Show the cluster's state: healthy, degraded, down or unknown.",
        ),
        "insights": Place(CLUSTER, "insights", "Show the latest results as the API gives them."),
        "api": Place(CLUSTER, "api", "Ask the insight API, with the toolkit's own key."),
        "playbook": Place(
            CLUSTER,
            "playbook",
            "Run one playbook of ansible/playbooks against the stack.",
        ),
        "env": Place(
            CLUSTER,
            "env",
            "Print the environment that plain `pulumi` commands need.",
        ),
        "down": Place(
            CLUSTER,
            "down",
            "Remove everything that `up` made; data volumes stay unless --purge.",
        ),
    },
    "Jobs": {
        "deploy": Place(
            CLUSTER,
            "deploy",
            "Deploy the streaming jobs of this checkout; where they run already, upgrade by"
            " hand-over.",
        ),
        "upgrade": Place(
            CLUSTER,
            "upgrade",
            "Upgrade the jobs or back out, by hand-over: the old ones lead until the new ones stand"
            " by.",
        ),
        "versions": Place(
            CLUSTER,
            "versions",
            "Show the versions of the jobs that may be run, and which one does.",
        ),
        "suspend": Place(
            CLUSTER,
            "suspend",
            "Let all streaming jobs finish their batches and end; events wait in Kafka.",
        ),
        "resume": Place(CLUSTER, "resume", "Have the jobs go on where they were suspended."),
        "jobs": Place(
            "millrace.cli.jobs",
            "app",
            "List, check, disable and enable the streaming jobs, one by one.",
        ),
        "reconcile": Place(
            "millrace.cli.reconcile",
            "reconcile_command",
            "Count a job's past again beside its stream, then have readers see that, or go back.",
        ),
        "table": Place(
            "millrace.cli.tables", "app", "Show and change facts that jobs look up, while they run."
        ),
        "dead-letters": Place(
            "millrace.cli.dead_letters",
            "app",
            "Show records that couldn't be used, and have a job count those that it left out.",
        ),
    },
    "Events": {
        "replay": Place(
            "millrace.replay.command",
            "replay_command",
            "Send a web log of Apache, nginx or Caddy into the pipeline, each line once.",
        ),
        "send": Place(
            "millrace.replay.send",
            "send_command",
            "Send a web log's lines to the collector, as they come.",
        ),
        "generate": Place(
            "millrace.generate.command",
            "generate_command",
            "Print synthetic web traffic as an access log in combined format.",
        ),
        "load": Place(
            "millrace.ledger.command",
            "load_command",
            "Send known traffic at a set rate, and keep a ledger of it for `millrace audit`.",
        ),
        "load-large": Place(
            "millrace.ledger.large",
            "load_large_command",
            "Send records that are no events and large once they are read, for a drill.",
        ),
        "advertise": Place(
            "millrace.ledger.advertise",
            "advertise_command",
            "Send impressions and clicks at a set rate, and say what has to come of them by"
            " campaign.",
        ),
    },
    "Access": {
        "keys": Place(
            "millrace.cli.keys",
            "app",
            "Say who may send events and read insights: list, add, rotate and revoke keys.",
        ),
    },
    "Proofs": {
        "audit": Place(
            "millrace.audit.command",
            "audit_command",
            "Compare what `millrace load` had acknowledged with every place where results are.",
        ),
        "why": Place(
            "millrace.cli.why",
            "why_command",
            "Say which events a number was made of, and whether they add up to what the API"
            " answers.",
        ),
        "ledger": Place(
            "millrace.cli.ledger",
            "ledger_command",
            "Show that what Kafka has of each stream is archived or a dead letter, or what isn't.",
        ),
        "drill": Place(
            "millrace.drill.command", "app", "Inject faults under load, measure and audit."
        ),
    },
    "Hosts": {
        "who": Place(
            HOSTS, "who_command", "Say which host has a role now; exit 3 if nobody has it."
        ),
        "hosts": Place(
            HOSTS, "hosts_command", "List hosts by name, one per line, for loops in the shell."
        ),
        "on": Place(
            HOSTS,
            "on_command",
            "Run a command on a host, as root; its exit code is the command's.",
        ),
        "host": Place(
            HOSTS,
            "host_command",
            "Take power (kill), pulse (freeze) or network (partition) from hosts, or give it back.",
        ),
        "await": Place(
            HOSTS,
            "await_command",
            "Wait until the cluster is healthy.",
        ),
        "logs": Place(
            "millrace.support.logs",
            "logs_command",
            "Show what all hosts logged, in the order of time.",
        ),
        "support-bundle": Place(
            "millrace.support.bundle",
            "bundle_command",
            "Put status, plan, logs, figures and configuration, without secrets, into one file.",
        ),
    },
    "Plan": {
        "plan": Place(PLAN, "plan", "Show what runs where: hosts x services x memory, per zone."),
        "capacity": Place(
            PLAN,
            "capacity",
            "Size brokers, partitions, HDFS and Cassandra for a load, with what is assumed.",
        ),
        "alerts": Place(
            PLAN,
            "alerts",
            "Print the alerts' rules for Prometheus; docs/alerts.md says what they mean.",
        ),
        "dashboards": Place(
            PLAN,
            "dashboards",
            "Print the dashboard of configs/panels.yaml, to be imported into a Grafana of yours.",
        ),
    },
    "For maintainers": {
        "lock": Place(
            MAINTAINERS,
            "lock",
            "Resolve versions.yaml and requirements/*.in anew and write the locks.",
        ),
        "docs": Place(
            MAINTAINERS,
            "docs",
            "Write the generated parts of the documents anew from configs/.",
        ),
    },
}


class Later(TyperCommand):
    """A command as `millrace --help` lists it."""

    def __init__(self, name: str, place: Place, panel: str) -> None:
        super().__init__(name, help=place.summary, rich_help_panel=panel)
        self._place = place

    def load(self) -> Any:
        """Imports the command and returns it."""
        found = getattr(import_module(self._place.module), self._place.name)
        holder = typer.Typer()
        if isinstance(found, typer.Typer):
            holder.add_typer(found, name=self.name)
        else:
            holder.command(self.name)(found)
        return typer.main.get_group(holder).commands[str(self.name)]

    def make_context(self, *arguments: Any, **settings: Any) -> Any:
        """It is called, or asked for its help: the context is the command's own."""
        return self.load().make_context(*arguments, **settings)


class Commands(TyperGroup):
    """Those of `COMMANDS`."""

    def __init__(self, **settings: Any) -> None:
        super().__init__(**settings)
        for panel, places in COMMANDS.items():
            for name, place in places.items():
                self.add_command(Later(name, place, panel))


app = typer.Typer(cls=Commands, no_args_is_help=True, pretty_exceptions_enable=False)


def _show_version(wanted: bool) -> None:
    if wanted:
        from millrace.common.version import described

        write(f"millrace {described()}")
        raise typer.Exit


def _stacks() -> list[str]:
    from millrace.config import environment_names

    return environment_names()


@app.callback()
def millrace(
    stack: Annotated[
        str,
        typer.Option(
            "--stack",
            envvar="MILLRACE_STACK",
            metavar="NAME",
            help="The one to act on, of configs/environments; it wins over the variable.",
            autocompletion=_stacks,
        ),
    ] = DEFAULT_STACK,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Show it.")
    ] = False,
) -> None:
    """Plan, run and prove a highly available stream-processing service."""
    os.environ["MILLRACE_STACK"] = stack  # for `stack_name`, and whatever is started


def main() -> None:
    """Entry point: what ends a command is told as text, and has its exit code."""
    try:
        ended = app(prog_name="millrace", standalone_mode=False)
    except OperatorError as error:
        _tell(error.message, error.hint)
        ended = error.exit_code
    except typer.TyperException as error:  # of the command line
        _tell(error.format_message(), _help_of(error))
        ended = Exit.USAGE
    except typer.Abort:  # at a question
        ended = Exit.STOPPED
    except Exception:  # our own mistake, whose words may be anybody's
        Console(stderr=True, soft_wrap=True).print(traceback.format_exc())
        ended = Exit.FAILED
    sys.exit(ended)


def _help_of(error: typer.TyperException) -> str | None:
    context = getattr(error, "ctx", None)
    return f"`{context.command_path} --help`" if context else None


def _tell(message: str, hint: str | None) -> None:
    show = Console(stderr=True, soft_wrap=True)
    if message:  # a help that nobody asked for by its name has been shown already
        show.print(Text.assemble(("error:", "bold red"), " ", as_text(message)))
    if message and hint:
        show.print(Text.assemble(("next:", "bold"), "  ", as_text(hint)))
