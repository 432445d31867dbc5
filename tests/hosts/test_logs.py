"""What hosts keep of what they say, and how an operator reads it."""

import subprocess
import sys

import pytest

from millrace.common.paths import stack_name
from millrace.plan import LOGS_ROOT, load_plan

PLAN = load_plan(stack_name())
JVMS = sorted(name for name, service in PLAN.services.items() if service.memory.heap)


def logs(*arguments: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-m", "millrace.cli", "logs", *arguments], capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.parametrize("name", [host.name for host in PLAN.hosts])
def test_a_journal_keeps_to_the_plans_bounds(host_named, name):
    read = host_named(name).check_output("systemd-analyze cat-config systemd/journald.conf")
    for key, value in PLAN.base.settings["journald.conf"].items():
        (*_, said) = [line for line in read.splitlines() if line.startswith(f"{key}=")]
        assert said == f"{key}={value}"


@pytest.mark.parametrize("service", JVMS)
def test_a_jvm_logs_its_collections_and_would_leave_its_heap(hosts_of, service):
    unit = PLAN.services[service].unit
    for name, host in hosts_of(service).items():
        assert host.file(f"{LOGS_ROOT}/{unit}/gc.log").exists, name
        pid = host.check_output(f"systemctl show -p MainPID --value {unit}")
        options = host.check_output(f"tr '\\0' '\\n' < /proc/{pid}/cmdline").splitlines()
        assert "-XX:+HeapDumpOnOutOfMemoryError" in options, name
        assert "-XX:+ExitOnOutOfMemoryError" in options, name


def test_every_host_is_read_in_the_order_of_time(host_named):
    for host in PLAN.hosts:
        host_named(host.name).check_output("logger --tag millrace-test 'a line of a test'")
    found = logs("--since", "5m", "--service", "system", "--grep", "a line of a test")
    assert {line.split()[2] for line in found} == {host.name for host in PLAN.hosts}
    times = [line[:23] for line in found]
    assert times == sorted(times)


def test_collections_are_found_where_they_are_asked_for():
    found = logs("--since", "24h", "--service", "kafka_broker", "--gc", "--grep", "GC|Using")
    assert {line.split()[2] for line in found} == {h.name for h in PLAN.hosts_of("kafka_broker")}
