"""The insight API on the edge hosts."""

import json

import pytest

from millrace.cluster import doors


@pytest.fixture(scope="module")
def edges(hosts_of):
    return hosts_of("insight_api")


@pytest.fixture(scope="module")
def get(through):
    def get(edge, path):
        answer = through(edge, doors.OWN_INSIGHTS).get(path)
        assert answer.is_success, answer.text
        return answer.text

    return get


def test_every_edge_reads_from_a_quorum(edges, get):
    for edge in edges:
        assert json.loads(get(edge, "/readyz")) == {"status": "ok"}


def test_every_edge_sees_the_whole_cluster(edges, get):
    for edge in edges:
        planes = {plane["name"]: plane for plane in json.loads(get(edge, "/v1/status"))["planes"]}
        assert planes["ingest"]["state"] == "up", planes["ingest"]["detail"]
        assert planes["store"]["state"] == "up", planes["store"]["detail"]
        assert planes["cache"]["state"] == "up", planes["cache"]["detail"]


def test_every_edge_serves_the_page(edges, get):
    for edge in edges:
        assert "<title>Millrace" in get(edge, "/")


def test_resident_memory_is_within_the_plan(plan, edges):
    planned = plan.services["insight_api"].memory.total
    for edge in edges.values():
        assert sum(p.rss for p in edge.process.filter(user="insight")) / 1024 <= planned
