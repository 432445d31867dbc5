"""What provides the hosts, and all that differs by it behind one interface.

docker.py   containers on this machine: docker_machine.py can it hold them,
            docker_hosts.py their power, pulse and network
aws.py      instances, entered through Session Manager
static.py   machines that somebody else made

How hosts are *made* is in `infra`, one room each as well.
"""

from importlib import import_module
from pathlib import Path
from typing import Protocol, cast

from millrace.common.errors import NOTHING_CHANGED, OperatorError
from millrace.common.paths import STATE
from millrace.plan import Host, Plan


class HostControl(Protocol):
    """Power, pulse and network of one host. Each action may be repeated."""

    def kill(self, host: Host) -> None: ...
    def start(self, host: Host) -> None: ...
    def freeze(self, host: Host) -> None: ...
    def thaw(self, host: Host) -> None: ...
    def partition(self, host: Host) -> None: ...
    def rejoin(self, host: Host) -> None: ...


class Provider(Protocol):
    """A module of this room."""

    # Whether `up` asks the policies before it changes anything.
    PREVIEWS: bool

    def check_machine(self, plan: Plan) -> str:
        """Says that this machine is enough. Raises OperatorError, with numbers, if it isn't."""

    def user(self, plan: Plan) -> str:
        """Returns the user who enters hosts."""

    def key_file(self, plan: Plan) -> Path:
        """Returns the private key's file, relative to the repository."""

    def ssh_options(self, plan: Plan) -> tuple[str, ...]:
        """For ``ssh``: the way to hosts that can't be reached straight."""

    def control(self, plan: Plan) -> HostControl:
        """OperatorError where hosts can't be handled from here."""


OPERATOR = "millrace"  # the user on hosts that Millrace makes


def provider_of(plan: Plan) -> Provider:
    """Loaded only when it is asked for: each has libraries that the others don't need."""
    return cast(Provider, import_module(f"millrace.providers.{plan.provider}"))


def own_key_file(plan: Plan) -> Path:
    """The key that `up` made for the stack."""
    return Path(f"{STATE.name}/{plan.environment}/ssh_key")


def refuse(problems: list[str], error: type[OperatorError] = OperatorError) -> None:
    if problems:
        raise error("\n".join(problems), NOTHING_CHANGED)


def no_control(plan: Plan) -> OperatorError:
    return OperatorError(
        f"hosts of provider '{plan.provider}' can't be handled from here",
        "use the provider's own console; `millrace host` knows Docker hosts only",
    )
