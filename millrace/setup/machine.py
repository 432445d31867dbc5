"""``millrace setup``: all steps, side by side; nothing is done that was done before."""

import fcntl
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import partial

from millrace.common.console import Console
from millrace.common.errors import OperatorError
from millrace.common.paths import CACHE, stack_name
from millrace.config import load_environment
from millrace.setup.distributions import ensure
from millrace.setup.docker_engine import ensure_docker
from millrace.setup.engine import ensure_aws_plugin, ensure_engine
from millrace.setup.image import ensure_image
from millrace.setup.kernel import ensure_limits
from millrace.setup.steps import Step, run_steps
from millrace.setup.versions import load_versions


def run(console: Console, only: Sequence[str] | None = None) -> None:
    """Bring this machine to where ``pulumi up`` can start, or take just the steps named."""
    wanted = steps(load_environment(stack_name()).provider)
    if only:
        known = [step.name for step in wanted]
        if unknown := set(only) - set(known):
            raise OperatorError(
                f"no set-up step {', '.join(sorted(unknown))}", f"the steps: {', '.join(known)}"
            )
        wanted = [step for step in wanted if step.name in only]
    with _alone(console):
        run_steps(wanted, console)


def steps(provider: str = "docker") -> list[Step]:
    """Returns what hosts of a provider need on this machine."""
    fixed = [Step("Pulumi engine", ensure_engine)]
    if provider == "docker":
        fixed += [
            Step("kernel limits", ensure_limits),
            Step("Docker engine", ensure_docker),
            Step("base image", ensure_image, needs=["Docker engine"]),
        ]
    if provider == "aws":
        fixed.append(Step("AWS plugin", ensure_aws_plugin, needs=["Pulumi engine"]))
    distributions = load_versions().distributions.items()
    return fixed + [Step(name, partial(ensure, name, pinned)) for name, pinned in distributions]


@contextmanager
def _alone(console: Console) -> Iterator[None]:
    """Lets one set-up run at a time: two would build into the same cache."""
    CACHE.mkdir(parents=True, exist_ok=True)
    with (CACHE / "setup.lock").open("w") as lock:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            console.print("another set-up is running on this machine; waiting for it to end")
            fcntl.flock(lock, fcntl.LOCK_EX)
        yield
