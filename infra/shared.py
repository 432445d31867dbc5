"""What the operators of a stack share beside its state: key to its hosts, certificates, secrets.

The files travel in the state, encrypted, as the stack's output `shared`. Of a file that differs,
the side counts that has changed it since both last agreed.
"""

import hashlib
import json
from collections.abc import Mapping
from pathlib import Path

from millrace.common import private_file
from millrace.common.errors import OperatorError

OUTPUT = "shared"
OWN = ("ssh_key", "ssh_key.pub")
SECRETS = "secrets"  # a folder
AGREED = "shared.json"  # file → digest of what the state had when it was last seen

Files = Mapping[str, str]  # path below the stack's folder → content


def merge(here: Files, there: Files, agreed: Mapping[str, str]) -> dict[str, str]:
    """Returns what the files are to hold, of what this machine has and what the state has.

    A file that only one side has is taken from there. Raises OperatorError where both have changed
    one.
    """
    merged = {**there, **here}
    clashes = []
    for name in here.keys() & there.keys():
        known = agreed.get(name)
        if here[name] == there[name] or digest(there[name]) == known:
            continue
        if digest(here[name]) == known:
            merged[name] = there[name]
        else:
            clashes.append(name)
    if clashes:
        raise OperatorError(
            f"another operator has changed what was changed here: {', '.join(sorted(clashes))}",
            "remove the file here to take theirs, or have theirs here first and change it again",
        )
    return merged


def fetch(folder: Path, there: Files) -> None:
    """Have in a stack's folder what others have put into its state."""
    merged = merge(here := read(folder), there, _agreed(folder))
    for name in (name for name in merged if merged[name] != here.get(name)):
        private_file.write(folder / name, merged[name])
    agree(folder, there)


def agree(folder: Path, there: Files) -> None:
    """Notes what the state has."""
    known = {name: digest(content) for name, content in there.items()}
    if known != _agreed(folder):
        private_file.write(folder / AGREED, json.dumps(known, indent=1))


def read(folder: Path) -> dict[str, str]:
    """Returns what there is of the shared files in a stack's folder."""
    names = [*OWN, *(f"{SECRETS}/{path.name}" for path in (folder / SECRETS).glob("*"))]
    return {name: (folder / name).read_text() for name in names if (folder / name).is_file()}


def digest(content: str) -> str:
    return hashlib.sha256(content.encode()).hexdigest()


def _agreed(folder: Path) -> dict[str, str]:
    path = folder / AGREED
    return json.loads(path.read_text()) if path.exists() else {}
