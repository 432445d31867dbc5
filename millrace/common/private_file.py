"""Files for this user's eyes alone: keys, secrets, and what says of them."""

import os
from pathlib import Path


def write(path: Path, content: str) -> None:
    """Written aside, and there as a whole or not at all: half a key is none."""
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.partial")
    with open(os.open(partial, os.O_CREAT | os.O_WRONLY | os.O_TRUNC, 0o600), "w") as file:
        file.write(content)
    partial.rename(path)
