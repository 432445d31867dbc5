"""Where things are on the operator's machine."""

import os
from pathlib import Path

REPO = Path(__file__).resolve().parents[2]
CONFIGS = REPO / "configs"
DEFAULT_STACK = "local"
ANSIBLE = REPO / "ansible"

# What belongs to this checkout: Pulumi's state, its passphrase, generated keys. Never in git.
STATE = REPO / ".millrace"

# What any checkout may share and anyone may delete: downloads, built images, tarballs.
CACHE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "millrace"
ARTIFACTS = CACHE / "artifacts"


def stack_state(stack: str) -> Path:
    """The folder of one stack's keys, name table and reports; made on first use."""
    folder = STATE / stack
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def stack_secrets(stack: str) -> Path:
    """The folder of one stack's secrets; whoever makes the first one makes it."""
    return stack_state(stack) / "secrets"


def stack_name() -> str:
    """The stack that commands act on: ``MILLRACE_STACK``, or ``local``.

    `millrace --stack` sets the variable, so that whatever it starts acts on the same one.
    """
    return os.environ.get("MILLRACE_STACK") or DEFAULT_STACK


def trial_jobs() -> str | None:
    """A folder whose jobs run beside the environment's while ``MILLRACE_TRIAL`` names it."""
    return os.environ.get("MILLRACE_TRIAL")
