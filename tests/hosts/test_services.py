"""What holds for every service of the plan: it runs where it should, as it should."""

import shlex

import pytest

from millrace.common.paths import stack_name
from millrace.plan import load_plan

PLAN = load_plan(stack_name())
PLACEMENTS = [(host.name, service) for host in PLAN.hosts for service in host.services]
HOSTS = [host.name for host in PLAN.hosts]
MOST_EXPOSED = 3.0  # of 10, as systemd-analyze counts; a unit without hardening has 9.6


@pytest.mark.parametrize(("name", "service"), PLACEMENTS)
def test_a_service_runs_under_its_own_user_and_comes_back_at_boot(host_named, name, service):
    unit, user = PLAN.services[service].unit, PLAN.services[service].user
    shown = host_named(name).check_output(
        f"systemctl show -p ActiveState,UnitFileState,User,Restart {unit}"
    )
    state = dict(line.split("=", 1) for line in shown.splitlines())
    assert state == {
        "ActiveState": "active",
        "UnitFileState": "enabled",
        "User": user,
        "Restart": "on-failure",
    }


@pytest.mark.parametrize("service", sorted(PLAN.services))
def test_a_unit_is_hardened(hosts_of, service):
    connection = next(iter(hosts_of(service).values()))
    unit = PLAN.services[service].unit
    overall = connection.check_output(f"systemd-analyze security --no-pager {unit} | tail -n 1")
    assert float(overall.split(":")[1].split()[0]) <= MOST_EXPOSED, overall
    shown = connection.check_output(f"systemctl show -p NoNewPrivileges,ProtectSystem {unit}")
    assert set(shown.splitlines()) == {"NoNewPrivileges=yes", "ProtectSystem=strict"}


@pytest.mark.parametrize("name", HOSTS)
def test_a_host_listens_only_where_the_plan_says(host_named, name):
    """Ports for other hosts, but those that a program chooses at random, which nobody may call."""
    services = [PLAN.services[service] for service in PLAN.host(name).services]
    spans = [span for service in services for span in service.port_ranges.values()]
    planned = {22} | {port for service in services for port in service.ports.values()}
    planned |= {port for span in spans for port in range(span.first, span.last + 1)}
    lines = host_named(name).check_output("ss -Hltn").splitlines()
    local = [line.split()[3].rsplit(":", 1) for line in lines]
    listening = {
        int(port)
        for address, port in local
        if not address.strip("[]").startswith(("127.", "::ffff:127."))
    }
    ephemeral = host_named(name).check_output("cat /proc/sys/net/ipv4/ip_local_port_range").split()
    fixed = {port for port in listening if not int(ephemeral[0]) <= port <= int(ephemeral[1])}
    assert fixed - planned == set()


@pytest.mark.parametrize("name", HOSTS)
def test_a_host_resolves_every_other_one_by_name(host_named, name):
    names = shlex.join(HOSTS)
    found = host_named(name).check_output(f"getent hosts {names}")
    assert found.split()[::2] == [PLAN.host(other).address for other in HOSTS]


def test_no_unit_of_ours_has_failed(host_named):
    failed = {
        name: output
        for name in HOSTS
        if (output := host_named(name).check_output("systemctl list-units --failed --plain -q"))
    }
    assert failed == {}


@pytest.mark.parametrize("name", HOSTS)
def test_a_hosts_network_has_the_plans_kernel_settings(host_named, name):
    tuned = PLAN.base.settings["sysctl.conf"]
    for key in [key for key in tuned if key.startswith("net.")]:
        path = key.replace(".", "/")
        assert host_named(name).check_output(f"cat /proc/sys/{path}") == str(tuned[key]), key
