"""A Docker engine: the one that runs, or else Debian's."""

import grp
import os
import subprocess
from contextlib import closing
from pathlib import Path

import docker
from docker.errors import DockerException

from millrace.common.errors import OperatorError
from millrace.common.paths import CACHE
from millrace.common.waiting import wait_until
from millrace.setup.packages import ensure_command
from millrace.setup.processes import as_root, run
from millrace.setup.steps import Report

SOCKET = Path("/var/run/docker.sock")
LOG = CACHE / "dockerd.log"
START_SECONDS = 60


def ensure_docker(report: Report) -> None:
    """Use the engine that answers; install and start one only when there is none."""
    if not _answering():
        _refuse_what_is_not_ours()
        report("installing")
        dockerd = ensure_command("dockerd", ["docker.io", "iptables"])
        report("starting")
        _start(dockerd)
    report(f"version {_answering()}")


def _answering() -> str | None:
    try:
        client = docker.from_env()
    except DockerException:
        return None
    with closing(client):
        return client.version()["Version"]


def _refuse_what_is_not_ours() -> None:
    """An engine that exists but doesn't answer must not get a second one beside it."""
    if address := os.environ.get("DOCKER_HOST"):
        raise OperatorError(
            f"no Docker engine answers at DOCKER_HOST={address}",
            "start that engine, or unset DOCKER_HOST to use this machine's",
        )
    if SOCKET.exists() and not os.access(SOCKET, os.W_OK):
        raise OperatorError(
            f"this user may not use the Docker engine: no write access to {SOCKET}",
            "`sudo usermod -aG docker $USER`, then log in again",
        )


def _start(dockerd: str) -> None:
    if Path("/run/systemd/system").is_dir():
        run(as_root(["systemctl", "start", "docker"]), what="starting the docker service")
        log = "`journalctl -u docker`"
    else:
        _start_detached(dockerd)
        log = str(LOG)

    def answers() -> bool:
        if _answering():
            return True
        _refuse_what_is_not_ours()
        return False

    if not wait_until(answers, START_SECONDS, every_seconds=0.5):
        raise OperatorError(
            f"dockerd was started but doesn't answer after {START_SECONDS} s",
            f"its own reason is in {log}",
        )


def _start_detached(dockerd: str) -> None:
    """Without systemd: a session of its own, so that it outlives this terminal."""
    # Who runs set-up may use the socket; root may anyway, and leaves it to the docker group.
    group = ["--group", grp.getgrgid(os.getgid()).gr_name] if os.geteuid() else []
    LOG.parent.mkdir(parents=True, exist_ok=True)
    with LOG.open("ab") as log:
        subprocess.Popen(
            as_root([dockerd, *group]),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
