"""A playbook's run as the operator sees it: a line per play, with the whole log in a file."""

import json
import os
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.text import Text

from millrace.cluster import tunnel, zookeeper
from millrace.common.console import Console, visible
from millrace.common.errors import OperatorError
from millrace.common.paths import ANSIBLE, stack_state
from millrace.common.stage import Stage
from millrace.plan import Plan

Event = Mapping[str, Any]  # as ansible/plugins/callback/millrace_events.py writes it

# Who passes one of these wants to read what Ansible itself prints.
OWN_OUTPUT = re.compile(r"-[Cb]*[Dhv]|--(diff|verbose|help|version|list-|syntax-check|step)")
# All others keep the service up: what they restart, they restart one after the other.
STOP_A_HOST = ("patch-host.yml", "release-host.yml")
NAME_WIDTH = 52
LOG_TAIL_LINES = 15
AGAIN = "mend what it names and run the same command again: what is done is not done twice"


def run_playbook(plan: Plan, name: str, arguments: Sequence[str], console: Console) -> None:
    """Run a file of ansible/playbooks against the plan's hosts; show a line per play.

    With arguments such as --diff or -v, what Ansible prints is shown instead.

    Raises:
        OperatorError: there is no such playbook, another operator's is at work, a task failed or a
            host is unreachable.
    """
    path = ANSIBLE / "playbooks" / name
    if not path.exists():
        known = ", ".join(sorted(p.name for p in path.parent.glob("*.yml")))
        raise OperatorError(f"there is no playbook {name}", f"the playbooks are: {known}")
    ansible = Path(sys.executable).with_name("ansible-playbook")
    with console.status("entering"):
        tunnel.await_entrance(plan)
    tunnel.addresses(plan, "kafka_broker", "operator")  # the topics are made from here
    # The toolkit's own interpreter comes first on PATH: the inventory script runs in it.
    environment = os.environ | {
        "MILLRACE_STACK": plan.environment,
        "PATH": f"{ansible.parent}{os.pathsep}{os.environ['PATH']}",
    }
    command = [str(ansible), str(path), *arguments]
    with zookeeper.alone(plan, name) as locked:
        if not locked:
            console.print(
                "ZooKeeper doesn't answer: no lock keeps another operator away", style="dim"
            )
        if any(OWN_OUTPUT.match(argument) for argument in arguments):
            if subprocess.run(command, cwd=ANSIBLE, env=environment).returncode:
                raise OperatorError(f"{name} failed; the task that did is shown above", AGAIN)
            return
        _run_quietly(
            command, environment, stack_state(plan.environment) / f"{path.stem}.log", console
        )


def _run_quietly(
    command: list[str], environment: dict[str, str], log: Path, console: Console
) -> None:
    console.print(f"the whole log: {log}", style="dim", soft_wrap=True)
    reading, writing = os.pipe()
    with log.open("w") as out, open(reading) as lines:
        run = subprocess.Popen(
            command,
            cwd=ANSIBLE,
            env=environment | {"MILLRACE_EVENTS_FD": str(writing)},
            pass_fds=[writing],
            stdout=out,
            stderr=subprocess.STDOUT,
        )
        os.close(writing)  # so that reading ends when Ansible does
        with run:
            failure = show(map(json.loads, lines), console, f"{log.stem}.yml")
    if run.returncode:
        # Before the first play there are no events: an inventory or a file that can't be read.
        tail = "\n".join(log.read_text().splitlines()[-LOG_TAIL_LINES:])
        raise OperatorError(failure or tail, f"{AGAIN}. The whole log: {log}")


@dataclass
class Play:
    """What is known of a play so far; hosts by name."""

    name: str
    started: float = field(default_factory=time.monotonic)
    task: str = ""
    again: str = ""  # which try of the task this is
    hosts: set[str] = field(default_factory=set)
    changed: set[str] = field(default_factory=set)
    failed: dict[str, str] = field(default_factory=dict)  # host -> message

    def take(self, event: Event) -> None:
        """Counts an event of this play."""
        match event:
            case {"event": "task", "name": name}:
                self.task, self.again = name, ""
            case {"event": "retry", "host": host, "left": left}:
                self.again = f", again on {host}, {left} left"
            case {"event": "result", "host": host, "status": status}:
                self.hosts.add(host)
                if status == "changed":
                    self.changed.add(host)
                elif status in ("failed", "unreachable"):
                    self.failed[host] = event["message"]

    def failure(self) -> str:
        """Play, task, and per host what it said; hosts that said the same are told together."""
        hosts: dict[str, list[str]] = {}
        for host, message in self.failed.items():
            hosts.setdefault(message, []).append(host)
        told = [f"{', '.join(names)}: {message}" for message, names in hosts.items()]
        return "\n".join([f"{self.name}: the task '{self.task}' failed", *told])

    def line(self) -> Text:
        """Says in one line how the play ended: its name, hosts, changed or failed ones, seconds."""
        sign = ("✗", "red") if self.failed else ("✓", "green")
        if self.failed:
            count = (f"{len(self.failed):3} failed ", "red")
        elif self.changed:
            count = (f"{len(self.changed):3} changed", "yellow")
        else:
            count = (" " * 11, "")
        hosts = f" {visible(self.name):{NAME_WIDTH}}{len(self.hosts):3} hosts  "
        return Text.assemble(sign, hosts, count, f"{time.monotonic() - self.started:8.1f} s")


def show(events: Iterable[Event], console: Console, name: str) -> str:
    """Show on a terminal each play when it ends; in a log those that fail, and a line a minute.

    Returns what failed, for the operator, or an empty string.
    """
    plays: list[Play] = []
    with Stage(console, name) as stage:
        for play in _ended(events, stage.say):
            if console.is_terminal or play.failed:
                console.print(play.line(), soft_wrap=True)
            plays.append(play)
    hosts = set().union(*(play.hosts for play in plays))
    changed = set().union(*(play.changed for play in plays))
    console.print(f"{len(hosts)} hosts, {len(changed)} changed, {stage.took} minutes")
    return "\n".join(play.failure() for play in plays if play.failed)


def _ended(events: Iterable[Event], tell: Callable[[str], None]) -> Iterator[Play]:
    """Each play when it has ended, but for those without a host, as --limit makes them."""
    play = Play("")
    for event in events:
        if event["event"] == "play":
            if play.hosts:
                yield play
            play = Play(event["name"])
        play.take(event)
        tell(f"{play.name}: {play.task}{play.again}")
    if play.hosts:
        yield play
