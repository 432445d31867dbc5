#!/usr/bin/env python3
"""How many events a second does one core take?

    PYTHONPATH=.:collector collector/bench/rate.py [--batch 500] [--requests 400] [--gzip]

One collector, as it runs on a host, over librdkafka's own stand-in for three brokers, which costs
some of the same core. Prints the events for each second of the processor's time: what machine and
load make of it is left out.
"""

import argparse
import gzip
import json
import os
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import httpx

from millrace.config import load_names
from millrace.config.streams import load_streams
from millrace.plan.streams import plan_stream
from millrace_shared.keys import ALL, COPY, Key, Keys, Secret, sha256

APP = "millrace_collector.app:serve"
SECRET = "bench" * 8
STREAM = "events"


def settings(metrics_port: int, folder: Path) -> dict[str, object]:
    stream = plan_stream(load_streams()[STREAM], STREAM, "small")
    return {
        "host": "bench",
        "all_doors": 1,
        "streams": {STREAM: stream.model_dump(mode="json")},
        "kafka": {"test.mock.num.brokers": 3, "linger.ms": 5, "compression.type": "lz4"},
        "zookeeper": "127.0.0.1:1",  # nobody: the keys are its copy's
        "znodes": load_names().zookeeper.model_dump(),
        "keys_file": str(folder / COPY),
        "keys_look_seconds": 2,
        "metrics_port": metrics_port,
        "request_bytes": 4_194_304,
        "buffer_bytes": 67_108_864,
        "receive_seconds": 10,
        "burst_seconds": 1,
        "event_bytes": 1024,
        "addresses": 1,
        "threads": 2,
        "allowed_origins": [],
    }


def keys() -> Keys:
    secret = Secret(sha256(SECRET.encode()))
    return Keys({"bench": Key([secret], streams=[ALL], events_per_second=10_000_000)})


def batch(size: int) -> bytes:
    """Events of some 330 bytes, as browsers make them."""
    return json.dumps(
        [
            {
                "event_id": f"01J{number:023d}",
                "event_time": "2026-05-17T10:05:03.000Z",
                "visitor_id": f"visitor-{number:05d}",
                "method": "GET",
                "url": f"/shop/{number}/?from=feed",
                "referrer": "https://www.example.org/search?q=millrace",
                "status": 200,
                "bytes": 20_000 + number,
                "user_agent": "Mozilla/5.0 (X11; Linux x86_64; rv:127.0) Gecko/20100101",
                "kind": "page_view",
            }
            for number in range(size)
        ]
    ).encode()


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        port: int = server.getsockname()[1]
    return port


def cpu_seconds(process: int) -> float:
    user, system = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[11:13]
    return (int(user) + int(system)) / os.sysconf("SC_CLK_TCK")


def resident_mib(process: int) -> float:
    pages = int(Path(f"/proc/{process}/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--batch", type=int, default=500)
    parser.add_argument("--requests", type=int, default=400)
    parser.add_argument("--gzip", action="store_true")
    options = parser.parse_args()
    port = free_port()
    with tempfile.TemporaryDirectory() as folder:
        config = Path(folder) / "config.json"
        config.write_text(json.dumps(settings(free_port(), Path(folder))))
        (Path(folder) / COPY).write_bytes(keys().content())
        options_of_server = f"--port {port} --no-access-log --log-level warning".split()
        server = subprocess.Popen(
            [sys.executable, "-m", "uvicorn", "--factory", APP, *options_of_server],
            env=os.environ | {"MILLRACE_COLLECTOR_CONFIG": str(config)},
        )
        try:
            measure(server.pid, port, options)
        finally:
            server.terminate()
            server.wait()


def measure(process: int, port: int, options: argparse.Namespace) -> None:
    headers = {"Authorization": f"Bearer {SECRET}", "Content-Type": "application/json"}
    body = batch(options.batch)
    if options.gzip:
        headers, body = headers | {"Content-Encoding": "gzip"}, gzip.compress(body)
    with httpx.Client(base_url=f"http://127.0.0.1:{port}", headers=headers, timeout=60) as client:
        while True:
            try:
                client.post(f"/v1/{STREAM}", content=body).raise_for_status()
                break
            except httpx.ConnectError:
                time.sleep(0.2)
        idle = resident_mib(process)
        began, cpu = time.monotonic(), cpu_seconds(process)
        for _ in range(options.requests):
            client.post(f"/v1/{STREAM}", content=body).raise_for_status()
        cpu, seconds = cpu_seconds(process) - cpu, time.monotonic() - began
    events = options.batch * options.requests
    print(f"{events / cpu:,.0f} events for each second of a core; {events / seconds:,.0f} a second")
    print(f"{idle:.0f} MiB at first, {resident_mib(process):.0f} at the end")


if __name__ == "__main__":
    main()
