"""What hosts keep of what they say, and how an operator reads it."""

import gzip
import subprocess
import sys
import tarfile

import pytest

from millrace.cluster.access import key_file
from millrace.common.paths import REPO, stack_name
from millrace.plan import LOGS_ROOT, load_plan
from tests.waiting import PATIENCE_SECONDS, wait_until

PLAN = load_plan(stack_name())
JVMS = sorted(name for name, service in PLAN.services.items() if service.memory.heap)


def millrace(*arguments: str) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-m", "millrace.cli", *arguments], capture_output=True, text=True
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
    found = millrace("logs", "--since", "5m", "--service", "system", "--grep", "a line of a test")
    assert {line.split()[2] for line in found} == {host.name for host in PLAN.hosts}
    times = [line[:23] for line in found]
    assert times == sorted(times)


def test_collections_are_found_where_they_are_asked_for():
    found = millrace(
        "logs", "--since", "24h", "--service", "kafka_broker", "--gc", "--grep", "GC|Using"
    )
    assert {line.split()[2] for line in found} == {h.name for h in PLAN.hosts_of("kafka_broker")}


def test_a_rehearsal_that_is_over_is_no_error():
    said = ("rehearsal over", "Rehearsed", "Query rehearsal of")
    wanted = ("--since", "24h", "--service", "driver", "--grep", "|".join(said))
    # The first rehearsals of a cluster that was just made take minutes on busy cores.
    found = wait_until(lambda: millrace("logs", *wanted), 10 * PATIENCE_SECONDS, "one is over")
    assert [line for line in found if said[0] not in line] == []


def test_a_bundle_has_every_host_and_no_key(tmp_path):
    path = tmp_path / "bundle.tar.gz"
    millrace("support-bundle", str(path), "--since", "15m")
    assert path.stat().st_size < 50_000_000
    found = {}
    with tarfile.open(path) as tar:
        for member in tar:
            data = tar.extractfile(member).read()
            found[member.name.partition("/")[2]] = data
    for host in PLAN.hosts:
        assert gzip.decompress(found[f"hosts/{host.name}/log.gz"]), host.name
        assert found[f"hosts/{host.name}/facts.txt"], host.name
    assert b'"values"' in found["metrics/services.json"]
    assert b'"state"' in found["status.json"]
    assert b"everybody has answered" in found["README.txt"]
    _, *lines, _ = (REPO / key_file(PLAN)).read_bytes().splitlines()
    for name, data in found.items():
        text = gzip.decompress(data) if name.endswith(".gz") else data
        assert not [line for line in lines if len(line) > 8 and line in text], name
