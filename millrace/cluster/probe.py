"""Runs on a host, fed to its ``python3 -`` over SSH: standard library only.

Reads one JSON object from argv[1]: service → {unit, ports, address, …}; prints one JSON object with
what only the host itself knows: its units, disks and memory, and what those services say that
nobody else may call. A question that fails answers {"error": …}: the state of a broken service is
the very thing that is wanted.
"""

import json
import os
import subprocess
import sys
import urllib.request

QUORUM_STATE = "metadata/__cluster_metadata-0/quorum-state"  # below the controller's data
TIMEOUT = 4  # s; a hung service must not hang the answer of its neighbours


def run(*command):
    done = subprocess.run(command, capture_output=True, text=True, timeout=20)
    if done.returncode:
        raise RuntimeError((done.stderr or done.stdout).strip().splitlines()[-1][:200])
    return done.stdout


def kafka_controller(service):
    # What the quorum agreed on, without the 3 s of a Java client.
    log = f"{service['data']}/{QUORUM_STATE}"
    with open(log) as state:
        quorum = json.load(state)
    return {"leader": quorum["leaderId"], "epoch": quorum["leaderEpoch"]}


def alertmanager(service):
    url = "http://{address}:{ports[http]}/api/v2/status".format(**service)
    with urllib.request.urlopen(url, timeout=TIMEOUT) as answer:
        return {"peers": len(json.load(answer)["cluster"]["peers"])}


QUESTIONS = {"kafka_controller": kafka_controller, "alertmanager": alertmanager}


def ask(name, service):
    if name not in QUESTIONS:
        return {}
    try:
        return QUESTIONS[name](service)
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"[:200]}


def unit_states(units):
    """Unit → whether it is active, and how often systemd has started it again."""
    shown = run("systemctl", "show", "-p", "ActiveState,NRestarts", *units)
    states = [
        dict(line.split("=", 1) for line in block.splitlines()) for block in shown.split("\n\n")
    ]
    return {
        unit: {"active": state["ActiveState"] == "active", "restarts": int(state["NRestarts"])}
        for unit, state in zip(units, states, strict=True)
    }


def disk(service):
    """Returns where a service's data are, and the share of that disk that is left."""
    try:
        disk = os.statvfs(service["data"])
    except OSError:
        return {}  # it has none
    return {"disk": {"path": service["data"], "free": disk.f_bavail / disk.f_blocks}}


def resident_bytes():
    """Resident memory of every process on the host; shared pages count once for each."""
    page = os.sysconf("SC_PAGE_SIZE")
    total = 0
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            with open(f"/proc/{pid}/statm") as statm:
                total += int(statm.read().split()[1]) * page
        except OSError:
            pass  # it ended while we looked
    return total


def main(wanted):
    states = unit_states([service["unit"] for service in wanted.values()])
    services = {
        name: states[service["unit"]] | disk(service) | ask(name, service)
        for name, service in wanted.items()
    }
    print(json.dumps({"resident": resident_bytes(), "services": services}))


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
