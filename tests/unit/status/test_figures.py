"""What is read from Prometheus' figures: only what is recent, and only that all is well."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from millrace.cluster.prometheus import Sample, Scraped, Target
from millrace.plan import CONTROLLER_ID_BASE, DATA_ROOT, load_plan
from millrace.status import figures
from millrace.status.collect import doubtful
from millrace.status.figures import is_refusal, read, stale_seconds
from millrace.status.snapshot import Backlog, Fault, HostFacts, Lag, Silence

PLAN = load_plan("local")
NOW = 1_800_000_000.0
REFUSED = (
    'Get "http://198.18.0.11:9100/metrics": dial tcp 198.18.0.11:9100: connect: connection refused'
)
LATE = 'Get "http://198.18.0.11:9100/metrics": context deadline exceeded'


def well(age: float = 5.0) -> Scraped:
    """What a Prometheus has of a cluster where all is well, scraped so long ago."""
    targets, samples = [], []

    def figure(service: str, host: str, called: str, number: float, **labels: str) -> None:
        samples.append(Sample(called, PLAN.services[service].unit, host, number, age, labels))

    for service in PLAN.services.values():
        for host in service.hosts if service.metrics else []:
            targets.append(Target(service.unit, host, "up", age))
    for host in PLAN.hosts:
        for name in host.services:
            unit = f"{PLAN.services[name].unit}.service"
            figure("node_exporter", host.name, figures.UNIT, 1, name=unit, state="active")
            figure("node_exporter", host.name, figures.RESTARTS, 0, name=unit)
        data = f"{DATA_ROOT}/data"
        figure("node_exporter", host.name, figures.DISK_FREE, 40.0, mountpoint=data)
        figure("node_exporter", host.name, figures.DISK_SIZE, 100.0, mountpoint=data)
        figure("node_exporter", host.name, figures.DISK_SIZE, 100.0, mountpoint="/boot")
    for host in PLAN.hosts_of("kafka_controller"):
        figure("kafka_controller", host.name, figures.LEADER, CONTROLLER_ID_BASE + 2)
        figure("kafka_controller", host.name, figures.EPOCH, 7)
    for host in PLAN.hosts_of("cassandra"):
        figure("cassandra", host.name, figures.NODES_DOWN, 0)
        figure("cassandra", host.name, figures.NODE_MODE, 1, value="NORMAL")
    for host in PLAN.hosts_of("alertmanager"):
        figure("alertmanager", host.name, figures.PEERS, 2)
    for host in PLAN.hosts_of("job_gateway"):
        figure("job_gateway", host.name, figures.LOOKED, NOW - 8)
        for job in PLAN.jobs:
            figure("job_gateway", host.name, figures.LAG, 40, name=job)
            figure("job_gateway", host.name, figures.OVERDUE, 0, name=job)
    return Scraped(NOW, tuple(targets), tuple(samples))


def scrape(scraped: Scraped, service: str, host: str, age: float, error: str) -> Scraped:
    """With a later scrape of one target that failed. The figures of the one before are left."""
    place = PLAN.services[service].unit, host
    targets = tuple(
        Target(*place, "down", age, error) if (t.job, t.host) == place else t
        for t in scraped.targets
    )
    return replace(scraped, targets=targets)


def aged(scraped: Scraped, service: str, host: str, age: float) -> Scraped:
    """With figures of one target that are so old."""
    place = PLAN.services[service].unit, host
    samples = (replace(s, age=age) if (s.job, s.host) == place else s for s in scraped.samples)
    return replace(scraped, samples=tuple(samples))


def figure(scraped: Scraped, called: str, host: str, number: float, **labels: str) -> Scraped:
    """With another value of one of a host's figures."""

    def is_meant(sample: Sample) -> bool:
        return (sample.name, sample.host) == (called, host) and (
            labels.items() <= dict(sample.labels).items()
        )

    assert any(is_meant(sample) for sample in scraped.samples)
    changed = (replace(s, value=number) if is_meant(s) else s for s in scraped.samples)
    return replace(scraped, samples=tuple(changed))


def of(*answers: Scraped):
    return read(PLAN, dict(zip(("edge-1", "edge-2"), answers, strict=False)))


def test_a_cluster_that_is_well_is_known_without_asking_a_host():
    found = of(well())
    assert doubtful(PLAN, found) == []
    assert found.ring == {node.address: "UN" for node in PLAN.hosts_of("cassandra")}
    assert found.lags == {job: Lag(40, 0) for job in PLAN.jobs}
    assert {one.leader for one in found.controllers.values()} == {CONTROLLER_ID_BASE + 2}
    facts = found.hosts["coord-1"]
    assert facts.units.keys() == set(PLAN.host("coord-1").services)
    assert facts.disks == {f"{DATA_ROOT}/data": 0.4}
    assert facts.resident is None
    assert found.age == 5.0


@pytest.mark.parametrize("replies", [{}, {"edge-1": Silence("late"), "edge-2": Fault("refused")}])
def test_without_a_prometheus_every_host_is_asked_itself(replies):
    found = read(PLAN, replies)
    assert doubtful(PLAN, found) == PLAN.hosts
    assert (found.ring, found.lags, found.age) == ({}, {}, None)


def test_one_of_two_prometheis_is_enough():
    found = read(PLAN, {"edge-1": Silence("late"), "edge-2": well()})
    assert doubtful(PLAN, found) == []


def names(hosts) -> list[str]:
    return [host.name for host in hosts]


def test_a_figure_that_is_too_old_says_nothing():
    longest = stale_seconds(PLAN)
    assert doubtful(PLAN, of(well(longest))) == []
    found = of(aged(well(), "node_exporter", "kafka-1", longest + 1))
    assert names(doubtful(PLAN, found)) == ["kafka-1"]
    assert found.doubts["kafka-1"] == "Prometheus has no recent figures of it"
    late = scrape(
        aged(well(), "node_exporter", "kafka-1", longest + 1), "node_exporter", "kafka-1", 3, LATE
    )
    assert of(late).doubts["kafka-1"] == f"Prometheus, 3 s ago: {LATE}"


def test_a_host_that_a_new_prometheus_has_not_asked_yet_is_asked_itself():
    whole = well()
    targets = (Target("node-exporter", "kafka-1", "unknown", 6e10),)
    samples = tuple(s for s in whole.samples if s.host != "kafka-1")
    found = of(replace(whole, targets=targets, samples=samples))
    assert found.doubts == {"kafka-1": "Prometheus has not asked it yet"}


def test_a_host_is_asked_itself_as_soon_as_a_scrape_met_nobody():
    found = of(scrape(well(9), "node_exporter", "kafka-1", 3, REFUSED))
    assert names(doubtful(PLAN, found)) == ["kafka-1"]
    assert found.doubts["kafka-1"] == f"Prometheus, 3 s ago: {REFUSED}"


def test_a_scrape_that_got_no_answer_in_time_doesnt_outweigh_the_one_before():
    """On a busy machine one is lost now and then; for three of them it counts."""
    assert doubtful(PLAN, of(scrape(well(19), "node_exporter", "kafka-1", 4, LATE))) == []


def test_a_series_that_has_ended_since_is_no_figure():
    whole = well(5)
    unit = f"{PLAN.services['kafka_broker'].unit}.service"
    ended = tuple(
        replace(s, age=20.0) if (s.host, s.labels.get("name")) == ("kafka-1", unit) else s
        for s in whole.samples
    )
    assert names(doubtful(PLAN, of(replace(whole, samples=ended)))) == ["kafka-1"]


def test_a_later_scrape_that_met_nobody_counts_more_than_an_earlier_one_that_did():
    """A host that has just died has good figures still, at the Prometheus that asked first."""
    lost = scrape(well(20), "node_exporter", "kafka-1", 1, REFUSED)
    assert names(doubtful(PLAN, of(well(9), lost))) == ["kafka-1"]
    assert names(doubtful(PLAN, of(lost, well(9)))) == ["kafka-1"]


def test_of_two_prometheis_the_one_that_asked_last_is_believed():
    later = figure(well(1), figures.RESTARTS, "kafka-1", 4, name="kafka-broker.service")
    for answers in ((later, well(9)), (well(9), later)):
        found = of(*answers)
        assert found.hosts["kafka-1"].units["kafka_broker"].restarts == 4
        assert found.age == 1


def test_a_host_that_is_back_is_known_by_the_later_scrape():
    lost = scrape(well(20), "node_exporter", "kafka-1", 9, REFUSED)
    assert doubtful(PLAN, of(well(1), lost)) == []


def test_a_prometheus_that_is_cut_off_from_a_host_doesnt_outweigh_one_that_is_not():
    cut_off = well(400)
    for host in PLAN.hosts:
        cut_off = scrape(cut_off, "node_exporter", host.name, 1, LATE)
    assert doubtful(PLAN, of(cut_off, well(9))) == []


def test_a_host_with_a_unit_that_isnt_active_is_asked_itself():
    unit = f"{PLAN.services['kafka_broker'].unit}.service"
    found = of(figure(well(), figures.UNIT, "kafka-2", 0, name=unit))
    assert names(doubtful(PLAN, found)) == ["kafka-2"]
    assert found.doubts["kafka-2"] == "by Prometheus kafka-broker.service was not active"


def test_a_host_with_a_unit_that_nobody_tells_of_is_asked_itself():
    whole = well()
    unit = f"{PLAN.services['zkfc'].unit}.service"
    left = tuple(s for s in whole.samples if (s.host, s.labels.get("name")) != ("master-1", unit))
    assert names(doubtful(PLAN, of(replace(whole, samples=left)))) == ["master-1"]


def test_restarts_that_nobody_counts_are_unknown():
    whole = well()
    left = tuple(s for s in whole.samples if s.name != figures.RESTARTS)
    found = of(replace(whole, samples=left))
    assert {unit.restarts for unit in found.hosts["edge-1"].units.values()} == {None}


@pytest.mark.parametrize("leader", [CONTROLLER_ID_BASE + 1, -1])
def test_controllers_that_disagree_are_asked_on_their_hosts(leader):
    """Two scrapes on either side of an election would show two leaders, or none."""
    found = of(figure(well(), figures.LEADER, "coord-3", leader))
    assert found.controllers == {}
    assert names(doubtful(PLAN, found)) == ["coord-1", "coord-2", "coord-3"]


def test_a_controller_that_refuses_a_scrape_is_asked_on_its_host():
    found = of(scrape(well(9), "kafka_controller", "coord-2", 2, REFUSED))
    assert names(doubtful(PLAN, found)) == ["coord-2"]


def test_an_alertmanager_that_knows_of_no_other_is_asked_on_its_host():
    found = of(figure(well(), figures.PEERS, "edge-2", 1))
    assert names(doubtful(PLAN, found)) == ["edge-2"]


def leaving(scraped: Scraped, node: str) -> Scraped:
    mode = figures.NODE_MODE
    samples = (
        replace(s, labels={"value": "LEAVING"}) if (s.name, s.host) == (mode, node) else s
        for s in scraped.samples
    )
    return replace(scraped, samples=tuple(samples))


@pytest.mark.parametrize(
    "sick",
    [
        figure(well(), figures.NODES_DOWN, "cassandra-1", 1),
        aged(well(), "cassandra", "cassandra-2", 400),
        scrape(well(), "cassandra", "cassandra-2", 1, REFUSED),
        leaving(well(), "cassandra-3"),
    ],
    ids=["sees-one-down", "silent", "refuses", "leaving"],
)
def test_a_ring_that_isnt_whole_is_asked_for(sick):
    assert of(sick).ring == {}


def test_a_job_is_behind_by_what_the_gateway_has_seen_wait():
    sick = well()
    for host in PLAN.hosts_of("job_gateway"):
        sick = figure(sick, figures.OVERDUE, host.name, 3, name="archive")
    overdue = {job: lag.overdue for job, lag in of(sick).lags.items()}
    assert overdue == dict.fromkeys(PLAN.jobs, 0) | {"archive": 3}


def test_a_job_that_is_behind_is_so_since_when_the_gateway_found_it():
    sample = Sample(
        figures.BEHIND_SINCE, PLAN.services["job_gateway"].unit, "edge-1", 77.0, 5.0, {}
    )
    told = [
        replace(sample, labels={"name": "archive"}),
        replace(sample, labels={"name": "traffic"}),
        replace(sample, name=figures.CATCH_UP, value=90.0, labels={"name": "traffic"}),
    ]
    sick = figure(well(), figures.LOOKED, "edge-1", NOW - 1)
    found = of(replace(sick, samples=(*sick.samples, *told)))
    assert found.backlogs == {"archive": Backlog(77.0, None), "traffic": Backlog(77.0, 90.0)}
    assert of(well()).backlogs == {}


def test_the_gateway_that_looked_last_tells_how_far_jobs_are():
    later = figure(well(), figures.LOOKED, "edge-2", NOW - 1)
    later = figure(later, figures.LAG, "edge-2", 7, name="archive")
    assert of(later).lags["archive"] == Lag(7, 0)


def test_a_gateway_that_looked_long_ago_tells_nothing():
    old = well()
    for host in PLAN.hosts_of("job_gateway"):
        old = figure(old, figures.LOOKED, host.name, NOW - stale_seconds(PLAN) - 1)
    assert of(old).lags == {}


@given(st.lists(st.tuples(st.sampled_from(sorted(PLAN.services)), st.integers(0, 2)), max_size=9))
def test_figures_that_are_missing_never_let_more_be_known(failed):
    whole, sick, without = of(well()), well(), set()
    for service, number in failed:
        hosts = PLAN.services[service].hosts
        host = hosts[number % len(hosts)]
        sick = aged(sick, service, host, 400)
        without |= {host} if service == "node_exporter" else set()
    found = of(sick)
    assert set(names(doubtful(PLAN, found))) >= without
    for host, facts in found.hosts.items():
        assert isinstance(facts, HostFacts)
        assert facts == whole.hosts[host]
    assert found.lags.items() <= whole.lags.items()
    assert found.ring in ({}, whole.ring)


@pytest.mark.parametrize(
    ("error", "is_one"),
    [
        (REFUSED, True),
        ("dial tcp 198.18.0.11:9100: connect: no route to host", True),
        (LATE, False),
        ("server returned HTTP status 503 Service Unavailable", False),
    ],
)
def test_a_refusal_is_told_from_an_answer_that_is_late(error, is_one):
    assert is_refusal(error) is is_one
