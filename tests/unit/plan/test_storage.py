"""What HDFS and Cassandra keep, by its own ages, against the disks that are there."""

import json
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from millrace.cli.plan_commands import capacity
from millrace.common.errors import OperatorError
from millrace.config import Environment, Setting, load_component, load_environment
from millrace.config.jobs import load_job_settings, with_jobs
from millrace.config.streams import load_streams
from millrace.plan.capacity import load_assumptions
from millrace.plan.make import plan_environment
from millrace.plan.spark import SparkSettings, settings_of
from millrace.plan.storage import (
    PROGRAMS,
    Room,
    Store,
    Stored,
    cassandra_share,
    hdfs_share,
    needs,
    problems,
)
from tests.unit.plan.changes import changed

ASSUME = load_assumptions()
SPARK = with_jobs(load_component("spark"), load_job_settings(load_streams()))
REPLACED = "spark.databricks.delta.properties.defaults.deletedFileRetentionDuration"
GIB = 2**30
FILL = ASSUME["disk_fill"]


def ages(profile: str = "large", **changes: int | str) -> SparkSettings:
    """The jobs' settings, with others by their group and name: ``traffic__keep_days=7``."""
    groups = {name: dict(group) for name, group in SPARK.settings.items()}
    for place, value in changes.items():
        group, _, key = place.partition("__")
        groups[group][key] = Setting(value=value, why="because a test says", source="a test")
    return settings_of(SPARK.model_copy(update={"settings": groups}), profile)


def stored(rate: float = 100_000, jobs=PROGRAMS, **changes: int | str) -> Stored:
    return Stored(rate, 240, ages(**changes), jobs, ASSUME)


def kinds(store: Store) -> dict[str, float]:
    return {kind.what: kind.bytes for kind in store.kinds}


# --- what is kept ---------------------------------------------------------------------------------


def test_the_archive_is_its_days_and_what_was_replaced_twice():
    found = kinds(stored(archive__keep_days=30).in_hdfs(3))
    day = 100_000 * 86_400 * 240 * ASSUME["archived_share"]
    assert found["the archive"] == pytest.approx(30 * day)
    assert found["its files that were merged"] == pytest.approx(7 * day)
    assert found["its files that have expired"] == pytest.approx(7 * day)
    assert stored().in_hdfs(3).bytes == pytest.approx(3 * sum(found.values()))


def test_each_kind_has_its_own_days():
    changes = {"traffic__keep_days": 2, "traffic__pages_keep_days": 3, "archive__keep_days": 4}
    before, after = (
        kinds(each.in_cassandra(3))
        for each in (
            stored(traffic__keep_days=1, traffic__pages_keep_days=1, archive__keep_days=1),
            stored(**changes),
        )
    )
    assert {what: after[what] / before[what] for what in before} == pytest.approx(
        {"windows": 2, "pages": 3, "dead letters": 4}
    )


def test_delta_may_keep_what_it_replaced_for_another_time():
    shorter = {f"spark-defaults.conf__{REPLACED}": "interval 1 days"}
    found = kinds(stored(**shorter).in_hdfs(3))
    assert found["the archive"] == pytest.approx(30 * found["its files that were merged"])
    with pytest.raises(OperatorError, match="'interval 1 week' is no age such as 'interval 7 d"):
        stored(**{f"spark-defaults.conf__{REPLACED}": "interval 1 week"})


def test_pages_are_as_many_as_the_profile_tracks():
    small, large = (kinds(stored(profile=p).in_cassandra(3))["pages"] for p in ("small", "large"))
    assert large == 4 * small


def test_a_job_of_one_file_adds_its_rows_and_its_state():
    jobs = (*PROGRAMS, "sessions")
    rows = kinds(stored(1000, jobs).in_cassandra(3))["rows of sessions"]
    assert rows == pytest.approx(1000 * 86_400 * 0.35 * ASSUME["result_bytes"] * 30)
    state = kinds(stored(1000, jobs).in_hdfs(3))["the checkpoint of sessions"]
    assert state == 50_000_000 * ASSUME["state_bytes"] * 7


def test_a_job_of_streams_without_a_stated_load_adds_no_rows():
    assert "rows of attribution" not in kinds(
        stored(1000, (*PROGRAMS, "attribution")).in_cassandra(3)
    )


rates = st.floats(1, 1e6)
days = st.integers(1, 900)


@given(rates, st.floats(1, 10), days, st.integers(0, 300))
def test_more_load_or_more_days_never_need_less(rate, factor, kept, more):
    jobs = (*PROGRAMS, "sessions")
    less = stored(rate, jobs, archive__keep_days=kept, traffic__keep_days=kept)
    longer = stored(rate, jobs, archive__keep_days=kept + more, traffic__keep_days=kept + more)
    busier = stored(rate * factor, jobs, archive__keep_days=kept, traffic__keep_days=kept)
    for other in (longer, busier):
        assert other.in_hdfs(3).bytes >= less.in_hdfs(3).bytes
        assert other.in_cassandra(3).bytes >= less.in_cassandra(3).bytes


# --- what disks hold ------------------------------------------------------------------------------


@given(rates, st.lists(st.integers(1, 9), min_size=3, max_size=4), st.integers(1, 3))
def test_what_fits_also_fits_when_a_zone_is_away(rate, zones, copies):
    store, room = stored(rate).in_hdfs(copies), Room(zones, 1)
    share = hdfs_share(store, room, FILL)
    assert store.bytes <= FILL * share * room.hosts * 1.0000001
    assert store.one_copy * min(copies, room.left) <= share * room.left * 1.0000001


@given(rates, st.lists(st.integers(1, 9), min_size=3, max_size=3))
def test_each_zone_holds_a_copy_and_compaction_has_its_room(rate, zones):
    store = stored(rate, (*PROGRAMS, "sessions")).in_cassandra(3)
    share = cassandra_share(store, Room(zones, 1), FILL)
    assert min(zones) * share * FILL * 1.0000001 >= store.one_copy * ASSUME["compaction_overhead"]


# --- environments ---------------------------------------------------------------------------------


def refusal(environment: Environment, name: str) -> str:
    with pytest.raises(OperatorError) as refused:
        plan_environment(name, environment)
    return refused.value.message


@pytest.mark.parametrize(
    ("name", "service", "disk"),
    [
        ("dev", "datanode", 5),
        ("staging", "datanode", 500),
        ("prod", "datanode", 4096),
        ("dev", "cassandra", 10),
        ("staging", "cassandra", 20),
        ("prod", "cassandra", 20),
    ],
)
def test_an_environment_without_room_is_taken_once_it_does_as_it_is_told(name, service, disk):
    group = {"datanode": "worker"}.get(service, service)
    path = f"aws/disks/{service}/size"
    small = changed(path, disk, name)
    message = refusal(small, name)
    assert message.startswith(f"configs/environments/{name}.yaml: {path.replace('/', '.')}: ")
    made = re.search(r"make it ([\d,]+)", message)
    assert made
    needed = int(made[1].replace(",", ""))
    assert plan_environment(name, changed(path, needed, name))
    assert refusal(changed(path, needed - 1, name), name)
    hosts = re.search(rf"give groups\.{group} (\d+) hosts", message)
    assert hosts
    content = small.model_dump(mode="json")
    content["groups"][group]["hosts"] = int(hosts[1])
    assert plan_environment(name, Environment.model_validate(content))


@settings(max_examples=25, deadline=None)
@given(
    rate=st.integers(1, 120_000),
    disk=st.integers(60, 16_384),
    hosts=st.integers(3, 40),
    kept=st.integers(1, 60),
)
def test_whatever_hdfs_needs_is_said(rate, disk, hosts, kept):
    content = changed("load/events_per_second", rate, "prod").model_dump(mode="json")
    content["aws"]["disks"]["datanode"]["size"] = disk
    content["groups"]["worker"]["hosts"] = hosts
    own, reserved = ages(archive__keep_days=kept), 50 * GIB
    told = list(problems(Environment.model_validate(content), own, PROGRAMS, reserved))
    environment = Environment.model_validate(content)
    [need, _] = needs(environment, own, PROGRAMS, reserved)
    assert need.room.hosts == hosts
    assert bool(told) == (need.size > disk)
    for problem in told:
        if made := re.search(r"make it ([\d,]+)", problem):
            content["aws"]["disks"]["datanode"]["size"] = int(made[1].replace(",", ""))
            environment = Environment.model_validate(content)
            assert not list(problems(environment, own, PROGRAMS, reserved))
        content["aws"]["disks"]["datanode"]["size"] = disk
        if more := re.search(r"give groups\.worker (\d+) hosts", problem):
            content["groups"]["worker"]["hosts"] = int(more[1])
            environment = Environment.model_validate(content)
            assert not list(problems(environment, own, PROGRAMS, reserved))


def test_nodes_of_cassandra_have_a_limit_however_large_their_disks():
    environment = changed("aws/disks/cassandra/size", 16_384, "prod")
    [problem] = [
        problem
        for problem in problems(environment, ages(), (*PROGRAMS, "sessions"), 0)
        if problem.startswith("groups.")
    ]
    hosts = re.search(
        r"^groups\.cassandra\.hosts: 3, and each holds 36\.\d TB .* make it (\d+), or", problem
    )
    assert hosts
    assert int(hosts[1]) % 3 == 0
    content = environment.model_dump(mode="json")
    content["groups"]["cassandra"]["hosts"] = int(hosts[1])
    left = problems(Environment.model_validate(content), ages(), (*PROGRAMS, "sessions"), 0)
    assert not [problem for problem in left if problem.startswith("groups.")]


def test_a_topic_holds_the_load_for_the_days_of_its_own_setting():
    longer = plan_environment("dev", load_environment("dev")).topics["events"]
    assert longer.retention_days == 7
    assert "load: 7 days are" in refusal(changed("load/events_per_second", 40, "dev"), "dev")


def test_millrace_capacity_says_what_both_stores_keep_at_the_profile_of_the_peak(capsys):
    capacity(events_per_second=100_000, event_bytes=240, as_json=True)
    told = json.loads(capsys.readouterr().out)
    needs = {need["what"]: need["needed"] for need in told["needs"]}
    assert needs["profile"] == "standard"
    store = stored(profile="standard").in_hdfs(3)
    assert needs["data in HDFS"] == pytest.approx(store.bytes)
    assert needs["disks of HDFS"] == pytest.approx(store.bytes / FILL)
    results = stored(profile="standard").in_cassandra(3)
    assert needs["disks of Cassandra"] == pytest.approx(2 * results.bytes / FILL)
    assert [kind["bytes"] for kind in told["kept"]] == pytest.approx(
        [kind.bytes for kind in (*store.kinds, *results.kinds)]
    )
    assert needs["events on disk"] == 100_000 * 240 * 7 * 86_400 * 3
