"""The operations page on the edge hosts, and every query of its panels against what runs."""

import json
import time
from urllib.parse import urlencode

import pytest

from millrace.cluster import doors
from millrace.config.alerts import load_alerts
from millrace.config.panels import load_panels
from millrace.panels import page

GET = (
    "import sys, urllib.request as u;"
    "sys.stdout.write(u.urlopen(sys.argv[1], timeout=60).read().decode())"
)
# They tell of something only once it has happened.
MAY_BE_EMPTY = {"left_out", "standby", "cost", "batches", "catch_up"}


@pytest.fixture(scope="module")
def get(plan, host_named, through):
    def get(host, service, path, **query):
        if service == "insight_api":
            return through(host, doors.OWN_INSIGHTS).get(path, params=query).json()
        url = f"http://{plan.host(host).address}:{plan.services[service].ports['http']}{path}"
        url += f"?{urlencode(query)}" if query else ""
        return json.loads(host_named(host).check_output("python3 -c %s %s", GET, url))

    return get


@pytest.fixture(scope="module")
def content(plan):
    return page(plan, load_panels(), load_alerts())


@pytest.fixture(scope="module")
def edges(plan):
    return plan.services["prometheus_server"].hosts


def test_both_prometheis_answer_every_query(content, edges, get):
    end = int(time.time())
    for edge in edges:
        for panel in (panel for group in content["groups"] for panel in group["panels"]):
            found = [
                get(
                    edge,
                    "prometheus_server",
                    "/api/v1/query_range",
                    query=query["expr"]
                    .replace("$__rate_interval", "60s")
                    .replace("$__interval", "15s"),
                    start=end - 900,
                    end=end,
                    step=15,
                )
                for query in panel["queries"]
            ]
            assert {one["status"] for one in found} == {"success"}
            empty = not any(one["data"]["result"] for one in found)
            assert not empty or panel["name"] in MAY_BE_EMPTY, panel["name"]


def test_each_edge_draws_every_panel(content, edges, get):
    overview = get(edges[0], "insight_api", "/v1/operations")
    names = [panel["name"] for group in overview["groups"] for panel in group["panels"]]
    assert names == [panel["name"] for group in content["groups"] for panel in group["panels"]]
    for edge in edges:
        for name in names:
            found = get(edge, "insight_api", f"/v1/operations/panels/{name}", range="15m")
            assert len(found["series"]) > 0 or name in MAY_BE_EMPTY, (edge, name)


def test_a_week_has_no_more_points_than_a_picture_takes(edges, get):
    for name in ("answers", "services", "disks"):
        found = get(edges[0], "insight_api", f"/v1/operations/panels/{name}", range="7d")
        assert {len(one["values"]) for one in found["series"]} == {7 * 24 * 2 + 1}, name


def test_events_tell_of_starts_and_of_the_version_that_runs(edges, get):
    for edge in edges:
        events = get(edge, "insight_api", "/v1/operations/events", range="7d")["events"]
        assert {"restart", "take-over"} <= {event["kind"] for event in events}


def test_alerts_are_those_of_prometheus(edges, get):
    for edge in edges:
        found = get(edge, "insight_api", "/v1/operations/alerts")["alerts"]
        assert all(alert["runbook"] for alert in found)
