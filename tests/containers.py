"""Commands in a container, by Docker's command line.

Docker's Python library loses what a command prints before the library reads (docker-py#3332): an
answer is empty now and then, the more often the busier the machine is.
"""

import subprocess

from docker.models.containers import Container


def on(container: Container, command: str, *arguments: str) -> str:
    """All that a shell's command, with these as $1 and so on, prints there; it must succeed."""
    inside = ["docker", "exec", container.name, "sh", "-c", command, "sh", *arguments]
    done = subprocess.run(inside, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    assert done.returncode == 0, done.stdout
    return done.stdout.strip()
