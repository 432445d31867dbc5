from ipaddress import IPv4Network

import pytest

from millrace.plan import load_plan
from millrace.providers.docker_machine import Machine, problems

PLAN = load_plan("local")
ROOMY = Machine(memory_available=64_000, disk_available=500_000, docker_root="/var/lib/docker")


def with_(**changes) -> Machine:
    return Machine(**(vars(ROOMY) | changes))


def test_a_roomy_machine_has_no_problem():
    assert problems(PLAN, ROOMY) == []


@pytest.mark.parametrize(
    ("machine", "complaint"),
    [
        (with_(memory_available=4_000), "4,000 MiB are available"),
        (with_(disk_available=1_000), "1,000 MiB are free"),
        (
            with_(routes=((IPv4Network("198.18.0.0/15"), "eth1"),)),
            "subnet 198.18.0.0/24 overlaps 198.18.0.0/15 on interface eth1",
        ),
        (
            with_(memory_available=4_000, other_clusters=frozenset({"millrace-test"})),
            "these clusters run beside it: millrace-test",
        ),
    ],
)
def test_a_machine_too_small_is_refused_with_numbers(machine, complaint):
    assert complaint in "\n".join(problems(PLAN, machine))


def test_hosts_that_run_already_need_no_more_memory():
    running = frozenset(host.name for host in PLAN.hosts)
    assert problems(PLAN, with_(memory_available=500, running_hosts=running)) == []
