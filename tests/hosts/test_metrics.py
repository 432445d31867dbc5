"""What scrapes get of the running cluster, and what Prometheus and Alertmanager make of it."""

import json
import re
from operator import not_
from urllib.parse import quote

import pytest
from prometheus_client.parser import text_string_to_metric_families

from millrace.alerts import rules
from millrace.cluster import doors
from millrace.cluster.prometheus import firing, query
from millrace.common.waiting import wait_until
from millrace.config.alerts import load_alerts

SCRAPE = (
    "import sys, urllib.request as u;"
    "sys.stdout.write(u.urlopen(sys.argv[1], timeout=60).read().decode())"
)


@pytest.fixture(scope="module")
def scrape(plan, hosts_of):
    def scrape(service):
        """Host → {(name, label's value, …): value}."""
        url = f"http://127.0.0.1:{plan.services[service].ports['metrics']}/metrics"
        return {
            name: {
                (sample.name, *sample.labels.values()): sample.value
                for family in text_string_to_metric_families(
                    host.check_output("python3 -c %s %s", SCRAPE, url)
                )
                for sample in family.samples
            }
            for name, host in hosts_of(service).items()
        }

    return scrape


def test_every_edge_tells_how_far_each_job_is(plan, scrape):
    for found in scrape("insight_api").values():
        assert found["millrace_api_store_up",] == 1
        for job in plan.jobs:
            assert found["millrace_job_updated_timestamp_seconds", job] > 0
            assert found["millrace_job_batches_total", job] >= 0


def test_every_gateway_tells_who_drives_and_what_lags_and_one_acts(plan, scrape):
    gateways = scrape("job_gateway")
    for found in gateways.values():
        for application in plan.applications:
            assert found["millrace_drivers", application, "leading"] == 1
        for job in plan.jobs:
            assert ("millrace_job_lag_records", job) in found
            assert found["millrace_job_epoch_given", job] > 0
    assert sum(found["millrace_gateway_acting",] for found in gateways.values()) == 1


# --- Prometheus and Alertmanager ------------------------------------------------------------------

MONITORING = ("prometheus_server", "alertmanager", "node_exporter", "redis_exporter")
BUDGET_MIB = 600
# By how much the small profile's `total` of a JVM is larger for what it tells: ZooKeeper by its own
# provider, the others by the agent.
IN_JVMS_MIB = {"zookeeper": 12, "kafka_broker": 25, "kafka_controller": 25, "cassandra": 25}
# A word of an expression that isn't called: a metric's name, but for `group_left` and its like.
METRIC = re.compile(r"\b[a-z][\w:]*_\w+\b(?!\s*\()")


@pytest.fixture(scope="module")
def ask(plan, host_named):
    def ask(service, host, path):
        """A service's answer on a host, as text."""
        url = f"http://{plan.host(host).address}:{plan.services[service].ports['http']}{path}"
        return host_named(host).check_output("python3 -c %s %s", SCRAPE, url)

    return ask


@pytest.fixture(scope="module")
def prometheus(plan, ask):
    def prometheus(path):
        """Edge host → what its Prometheus answers."""
        return {
            host.name: json.loads(ask("prometheus_server", host.name, f"/api/v1/{path}"))["data"]
            for host in plan.hosts_of("prometheus_server")
        }

    return prometheus


def within(seconds, found):
    """What is left of what should be nothing, after so many seconds at most."""
    return wait_until(found, seconds, 2, done=not_)


def test_both_prometheis_get_every_target_of_the_plan(plan, prometheus):
    expected = {
        (service.unit, host)
        for service in plan.services.values()
        if service.metrics
        for host in service.hosts
    }
    for found in prometheus("targets?state=active").values():
        labels = [target["labels"] for target in found["activeTargets"]]
        assert {(label["job"], label["host"]) for label in labels} == expected

    def silent():
        return [
            (edge, target["scrapeUrl"], target["lastError"])
            for edge, found in prometheus("targets?state=active").items()
            for target in found["activeTargets"]
            if target["health"] != "up"
        ]

    assert within(180, silent) == []


def test_the_services_have_the_names_that_alerts_ask_for(plan, prometheus):
    """Those of our own programs are looked for above."""
    expressions = [
        rule["expr"] for group in rules(plan, load_alerts())["groups"] for rule in group["rules"]
    ]
    asked = {name for text in expressions for name in METRIC.findall(re.sub(r'".*?"', "", text))}
    asked = {name for name in asked if not name.startswith("millrace")}
    assert {"node_filesystem_avail_bytes", "fs_namesystem_missing_blocks"} <= asked
    for names in prometheus("label/__name__/values").values():
        assert asked - {*names} == set()


def test_no_alert_wakes_anybody_while_all_is_well(prometheus):
    def waking():
        return {
            (edge, alert["labels"]["alertname"], alert["annotations"]["summary"])
            for edge, found in prometheus("alerts").items()
            for alert in found["alerts"]
            if alert["labels"]["severity"] == "critical" and alert["state"] == "firing"
        }

    assert within(180, waking) == set()


def test_both_prometheis_have_every_rule_and_evaluate_it(plan, prometheus):
    expected = sum(len(group["rules"]) for group in rules(plan, load_alerts())["groups"])
    for found in prometheus("rules").values():
        made = [rule for group in found["groups"] for rule in group["rules"]]
        assert len(made) == expected
        assert [rule["name"] for rule in made if rule["health"] == "err"] == []


@pytest.mark.parametrize(
    ("expression", "value"),
    [
        ("sum(kafka_controller_kafkacontroller_activecontrollercount)", 1),
        ("sum(synced_followers)", 2),
        ('count(redis_instance_info{role="master"})', 1),
        ("count(name_node_name_node_state == 1)", 1),
        ("max(cassandra_failuredetector_downendpointcount)", 0),
        ('count(node_systemd_unit_state{name=~"zkfc.service",state="active"} == 1)', 2),
    ],
)
def test_figures_are_those_of_a_cluster_that_is_whole(prometheus, expression, value):
    for found in prometheus(f"query?query={quote(expression)}").values():
        assert [float(sample["value"][1]) for sample in found["result"]] == [value]


def test_each_data_volume_is_watched(plan, prometheus):
    expected = {(host.name, volume.path) for host in plan.hosts for volume in host.volumes}
    for found in prometheus("query?query=node_filesystem_avail_bytes").values():
        seen = {(s["metric"]["host"], s["metric"]["mountpoint"]) for s in found["result"]}
        assert expected - seen == set()


def test_alertmanagers_know_each_other_and_have_their_configuration(plan, ask):
    hosts = plan.services["alertmanager"].hosts
    for host in hosts:
        status = json.loads(ask("alertmanager", host, "/api/v2/status"))
        assert len(status["cluster"]["peers"]) == len(hosts)
        assert "operators" in status["config"]["original"]


def test_each_prometheus_tells_the_alertmanager_of_its_host(plan, prometheus):
    for host, found in prometheus("alertmanagers").items():
        [told] = found["activeAlertmanagers"]
        assert plan.host(host).address in told["url"]


def test_the_page_that_an_alert_links_to_opens_on_both_edges(plan, through):
    for host in plan.services["insight_api"].hosts:
        assert "<h1>" in through(host, doors.INSIGHTS).get("/runbooks/driver-killed").text


@pytest.fixture(scope="module")
def memory(plan, hosts_of):
    """(Host, service) → the lines of its process' status that begin so, in MiB."""
    return {
        (name, service): {
            key: int(kibibytes) / 1024
            for key, kibibytes in re.findall(
                r"(VmRSS|RssAnon):\s+(\d+) kB",
                host.check_output(
                    "cat /proc/$(systemctl show -P MainPID %s)/status",
                    plan.services[service].unit,
                ),
            )
        }
        for service in MONITORING
        for name, host in hosts_of(service).items()
    }


def test_resident_memory_is_within_the_plan(plan, memory):
    over = {
        place: found["VmRSS"]
        for place, found in memory.items()
        if found["VmRSS"] > plan.services[place[1]].memory.total
    }
    assert over == {}


def test_all_of_it_is_within_a_laptops_budget(plan, memory):
    """What can't be given back: a program's own file stays on disk, and is read again."""
    if plan.profile != "small":
        pytest.skip("these are no laptops")
    own = sum(found["RssAnon"] for found in memory.values())
    lent = sum(mib * len(plan.services[service].hosts) for service, mib in IN_JVMS_MIB.items())
    assert own + lent < BUDGET_MIB, (own, lent)


def test_operators_ask_every_prometheus_where_it_runs(plan):
    replicas = query(plan, "count(up)")
    assert len(replicas) == len(plan.hosts_of("prometheus_server"))
    firing(plan, 60)  # refused by none of them
