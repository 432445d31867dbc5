"""Runs on a host, fed to its ``python3 -`` over SSH: standard library only.

Reads one JSON object from argv[1]: service → {unit, ports, address, …}; prints one JSON object with
what this host's services say of themselves. A question that fails answers {"error": …}: the state
of a broken service is the very thing that is wanted.
"""

import json
import os
import socket
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


def http(address, port, path):
    with urllib.request.urlopen(f"http://{address}:{port}{path}", timeout=TIMEOUT) as answer:
        return json.load(answer)


def bean(address, port, name):
    return http(address, port, f"/jmx?qry={name}")["beans"][0]


def zookeeper(service):
    with socket.create_connection(
        (service["address"], service["ports"]["client"]), TIMEOUT
    ) as link:
        link.sendall(b"srvr")
        text = b"".join(iter(lambda: link.recv(4096), b"")).decode()
    mode = next(line for line in text.splitlines() if line.startswith("Mode: "))
    return {"role": mode.removeprefix("Mode: ")}


def kafka_controller(service):
    # What the quorum agreed on, without the 3 s of a Java client.
    log = f"{service['data']}/{QUORUM_STATE}"
    with open(log) as state:
        quorum = json.load(state)
    leads = quorum["leaderId"] == service["node_id"]
    return {"role": "leader" if leads else "follower", "epoch": quorum["leaderEpoch"]}


def redis_info(port, section):
    lines = run("redis-cli", "-p", str(port), "info", section).splitlines()
    return dict(line.split(":", 1) for line in lines if ":" in line)


def redis(service):
    info = redis_info(service["ports"]["client"], "replication")
    return {
        "role": info["role"].replace("slave", "replica"),
        "replicas": int(info.get("connected_slaves", 0)),
        "link": info.get("master_link_status", "up"),
    }


def redis_sentinel(service):
    port, master = str(service["ports"]["client"]), service["master"]
    answer = run("redis-cli", "-p", port, "sentinel", "ckquorum", master)
    return {"quorum": answer.startswith("OK")}


def namenode(service):
    address, port = service["address"], service["ports"]["http"]
    state = bean(address, port, "Hadoop:service=NameNode,name=NameNodeStatus")["State"]
    fs = bean(address, port, "Hadoop:service=NameNode,name=FSNamesystem")
    return {
        "role": state,
        "live_datanodes": fs["NumLiveDataNodes"],
        "missing_blocks": fs["MissingBlocks"],
        "under_replicated": fs["UnderReplicatedBlocks"],
    }


def resourcemanager(service):
    address, port = service["address"], service["ports"]["http"]
    role = http(address, port, "/ws/v1/cluster/info")["clusterInfo"]["haState"].lower()
    answer = {"role": role}
    if role == "active":
        answer["nodes"] = http(address, port, "/ws/v1/cluster/metrics")["clusterMetrics"][
            "activeNodes"
        ]
        found = http(address, port, "/ws/v1/cluster/apps?states=ACCEPTED,RUNNING")["apps"] or {}
        keys = ("id", "name", "state", "allocatedMB", "elapsedTime")
        answer["applications"] = [{k: app[k] for k in keys} for app in found.get("app", [])]
    return answer


def insight_api(service):
    address, port = service["address"], service["ports"]["http"]
    return {
        "ready": bool(http(address, port, "/readyz")),
        "progress": http(address, port, "/v1/progress"),
    }


def collector(service):
    return {"ready": bool(http(service["address"], service["ports"]["http"], "/readyz"))}


def prometheus_server(service):
    address, port = service["address"], service["ports"]["http"]
    targets = http(address, port, "/api/v1/targets?state=active")["data"]["activeTargets"]
    alerts = http(address, port, "/api/v1/alerts")["data"]["alerts"]
    return {
        "targets": len(targets),
        "silent": sum(target["health"] == "down" for target in targets),
        "alerts": [
            {
                "labels": alert["labels"],
                "alert": alert["labels"]["alertname"],
                "state": alert["state"],
                "component": alert["labels"]["component"],
                "severity": alert["labels"]["severity"],
                "since": alert["activeAt"],
                "summary": alert["annotations"]["summary"],
                "runbook": alert["annotations"]["runbook_url"].rpartition("/")[2],
            }
            for alert in alerts
        ],
    }


def alertmanager(service):
    state = http(service["address"], service["ports"]["http"], "/api/v2/status")
    return {"peers": len(state["cluster"]["peers"])}


QUESTIONS = {
    "zookeeper": zookeeper,
    "kafka_controller": kafka_controller,
    "redis": redis,
    "redis_sentinel": redis_sentinel,
    "namenode": namenode,
    "resourcemanager": resourcemanager,
    "insight_api": insight_api,
    "collector": collector,
    "prometheus_server": prometheus_server,
    "alertmanager": alertmanager,
}


def ask(name, service):
    if name not in QUESTIONS:
        return {}
    try:
        return QUESTIONS[name](service)
    except Exception as error:
        return {"error": f"{type(error).__name__}: {error}"[:200]}


def unit_state(unit):
    shown = run("systemctl", "show", "-p", "ActiveState,NRestarts", unit)
    state = dict(line.split("=", 1) for line in shown.splitlines())
    return {"active": state["ActiveState"] == "active", "restarts": int(state["NRestarts"])}


def disk(service):
    """Where a service's data are, and the share of that disk that is left."""
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


if __name__ == "__main__":
    wanted = json.loads(sys.argv[1])
    print(
        json.dumps(
            {
                "resident": resident_bytes(),
                "services": {
                    n: unit_state(s["unit"]) | disk(s) | ask(n, s) for n, s in wanted.items()
                },
            }
        )
    )
