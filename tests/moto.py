"""An AWS on loopback, for tests that talk to its API: moto, in an environment of its own."""

import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from millrace.common.errors import OperatorError
from millrace.common.paths import REPO

MADE = ".venv/rehearsal/ready"
BIN = REPO / ".venv" / "rehearsal" / "bin"


@contextmanager
def moto(folder: Path) -> Iterator[dict[str, str]]:
    """Yields the environment in which everything that asks AWS asks this one. Its log is in
    ``folder``.
    """
    subprocess.run(["make", "--silent", MADE], cwd=REPO, check=True)
    where = [BIN / "python", "-c", "import moto; print(moto.__path__[0])"]
    package = Path(subprocess.check_output(where, text=True).strip())
    port = _free_port()
    with (folder / "moto.log").open("w") as log:
        command = [BIN / "moto_proxy", "-H", "127.0.0.1", "-p", str(port)]
        server = subprocess.Popen(command, stdout=log, stderr=log)
    try:
        _await(server, port)
        yield {
            "HTTPS_PROXY": f"http://127.0.0.1:{port}",
            "NO_PROXY": "127.0.0.1,localhost",
            "AWS_CA_BUNDLE": str(package / "moto_proxy" / "ca.crt"),
            "AWS_ACCESS_KEY_ID": "rehearsal",
            "AWS_SECRET_ACCESS_KEY": "rehearsal",
        }
    finally:
        server.terminate()
        server.wait()


def asked(script: str, *arguments: str) -> str:
    """What a script prints that has boto3."""
    return subprocess.check_output([BIN / "python", "-c", script, *arguments], text=True)


def _free_port() -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


def _await(server: subprocess.Popen, port: int) -> None:
    for _ in range(60):
        if server.poll() is not None:
            raise OperatorError(f"moto_proxy ended with {server.returncode}")
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            time.sleep(0.5)
        else:
            return
    raise OperatorError(f"moto_proxy doesn't answer on port {port}")
