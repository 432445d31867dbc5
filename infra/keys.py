"""Secrets that are made once on the operator's machine and never leave it."""

import secrets
import shutil
import subprocess
from pathlib import Path

from millrace.common import private_file
from millrace.common.errors import OperatorError
from millrace.common.paths import STATE, stack_state


def ensure_passphrase() -> Path:
    """The file with the passphrase that encrypts the secrets in Pulumi's state."""
    path = STATE / "passphrase"
    if not path.exists():
        STATE.mkdir(parents=True, exist_ok=True)
        # Written aside: half a passphrase must never encrypt anything.
        private_file.write(path, secrets.token_urlsafe(32))
    return path


def ensure_ssh_key(stack: str) -> str:
    """The public key by which Ansible enters a stack's hosts."""
    key = stack_state(stack) / "ssh_key"
    public = key.with_suffix(".pub")
    if not public.exists():
        key.unlink(missing_ok=True)  # an interrupted run's; ssh-keygen would ask about it
        _generate(key, f"millrace-{stack}")
    return public.read_text().strip()


def _generate(key: Path, comment: str) -> None:
    if not shutil.which("ssh-keygen"):
        raise OperatorError("ssh-keygen is missing", "apt-get install openssh-client")
    command = ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-C", comment, "-f", str(key)]
    subprocess.run(command, check=True)
