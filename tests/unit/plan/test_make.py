"""What the planner accepts must survive; what can't survive it must refuse, by name."""

import shutil
from collections import Counter
from functools import reduce

import pytest
import yaml
from hypothesis import HealthCheck, assume, given, settings
from hypothesis import strategies as st

from millrace.common.errors import OperatorError
from millrace.common.paths import CONFIGS
from millrace.config import (
    Component,
    Environment,
    Events,
    Setting,
    load_component,
    load_environment,
    load_events,
    load_names,
)
from millrace.config.jobs import load_job_settings, with_jobs
from millrace.config.lookup_tables import load_tables
from millrace.config.streams import load_streams
from millrace.inventory import build_inventory
from millrace.plan import SHARED_COMPONENTS, Plan, load_plan, make_plan
from millrace.plan.capacity import load_assumptions
from millrace.plan.spark import rate_problems, settings_of, store_problems

LOCAL = load_environment("local").model_dump(mode="json")
SERVICES = sorted(
    {s for group in LOCAL["groups"].values() for s in group["services"]} | {*LOCAL["every_host"]}
)
COMPONENTS = {name: load_component(name) for name in [*SERVICES, *SHARED_COMPONENTS]}
EVENTS = load_events()
NAMES = load_names()
STREAMS = load_streams()
TABLES = load_tables()
COMPONENTS["spark"] = with_jobs(COMPONENTS["spark"], load_job_settings(STREAMS))


def changed(path: str, value: object) -> dict:
    """The local environment with one key changed: ``groups.kafka.hosts``."""
    *folders, key = path.split(".")
    content = Environment.model_validate(LOCAL).model_dump(mode="json")
    place = content
    for folder in folders:
        place = place[folder]
    place[key] = value
    return content


def plan_of(content: dict) -> Plan:
    return make_plan(
        "local", Environment.model_validate(content), COMPONENTS, EVENTS, NAMES, STREAMS, TABLES
    )


@pytest.mark.parametrize(
    ("path", "value", "complaint"),
    [
        ("groups.coord.hosts", 4, "zookeeper: 4 members; a quorum needs an odd number"),
        ("groups.coord.hosts", 1, "kafka_controller: 1 members; a quorum needs an odd number"),
        ("groups.kafka.hosts", 2, "replication.kafka.factor: 3 replicas can't stand on 2"),
        ("replication.kafka.min_insync", 3, "replication.kafka.min_insync: 3 with factor 3"),
        ("replication.kafka.min_insync", 1, "acknowledges events that a single disk holds"),
        ("replication.cassandra", 4, "replication.cassandra: 4 replicas can't stand on 3"),
        ("replication.hdfs", 1, "replication.hdfs: 1 replicas; with fewer than 3"),
        ("zones", ["a"], "zone a holds 3 of 3 members; losing it loses the majority"),
        ("zones", ["a", "b"], "zone a holds 2 of 3 members"),
        ("groups.master.hosts", 1, "namenode: 1 host; it needs a second one to fail over to"),
        ("replication.sentinel_quorum", 3, "3 is out of reach when a zone is lost"),
        ("replication.sentinel_quorum", 1, "1 of 3 is no majority"),
        ("groups.cassandra.memory", 256, "groups.cassandra.memory: 256 MiB; its services need"),
        ("groups.kafka.services", ["kafka_broker", "redis"], "redis already stands in groups."),
        ("groups.kafka.services", ["kafka_brokr"], "no component 'kafka_brokr'"),
        ("groups.kafka.services", ["node_exporter"], "already stands in every_host"),
        ("every_host", ["node_exportr"], "every_host: no component 'node_exportr'"),
        ("network.subnet", "198.18.0.0/28", "198.18.0.0/28 is too small"),
        ("groups.kafka.hosts", 12, "12 is over 9, the addresses of a group"),
    ],
)
def test_a_topology_that_one_loss_would_stop_is_refused(path, value, complaint):
    with pytest.raises(OperatorError) as refused:
        plan_of(changed(path, value))
    assert complaint in refused.value.message
    assert refused.value.message.startswith("configs/environments/local.yaml: ")


def test_a_port_used_twice_on_a_host_is_refused():
    twin = COMPONENTS["journalnode"].model_copy(update={"ports": COMPONENTS["zookeeper"].ports})
    environment = Environment.model_validate(LOCAL)
    with pytest.raises(OperatorError, match=r"groups.coord: port \d+ is zookeeper.client's and j"):
        make_plan(
            "local", environment, COMPONENTS | {"journalnode": twin}, EVENTS, NAMES, STREAMS, TABLES
        )


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("groups.kafka.hosts", "3"),
        ("groups.kafka.hots", 3),
        ("profile", "tiny"),
        ("network.subnet", "198.18.0.0/99"),
        ("zones", ["a", "a", "b"]),
    ],
)
def test_a_bad_key_is_refused_with_file_and_key(tmp_path, monkeypatch, path, value):
    import yaml

    folder = tmp_path / "environments"
    folder.mkdir()
    (folder / "broken.yaml").write_text(yaml.safe_dump(changed(path, value)))
    with pytest.raises(OperatorError) as refused:
        load_environment("broken", tmp_path)
    assert "environments/broken.yaml: " in refused.value.message
    assert path.rsplit(".", 1)[0] in refused.value.message


def test_one_refusal_has_every_problem_of_a_configuration():
    content = changed("replication.sentinel_quorum", 1)
    content["receiver"] = {"webhook_configs": [{"password": "open"}]}
    content["applications"] = {"insights": ["archive", "erors"]}
    events = EVENTS.model_dump()
    del events["topics"]["clicks"]["partitions"]["small"]
    spark = COMPONENTS["spark"].model_dump()
    spark["settings"]["traffic"]["watermark_seconds"]["value"] = "1d"
    with pytest.raises(OperatorError) as refused:
        make_plan(
            "local",
            Environment.model_validate(content),
            COMPONENTS | {"spark": Component.model_validate(spark)},
            Events.model_validate(events),
            NAMES,
            STREAMS,
            TABLES,
        )
    assert [line.partition(": ")[::2] for line in sorted(refused.value.message.splitlines())] == [
        ("configs/components/events.yaml", "topics.clicks.partitions: none for profile small"),
        (
            "configs/components/spark.yaml",
            "traffic.watermark_seconds: Input should be a valid integer",
        ),
        (
            "configs/environments/local.yaml",
            "applications.insights: no job erors; it needs erors.yaml in configs/jobs or in one of"
            " job_folders",
        ),
        (
            "configs/environments/local.yaml",
            "receiver: password is a secret: say password_file, and the name of a file for it",
        ),
        (
            "configs/environments/local.yaml",
            "replication.sentinel_quorum: 1 of 3 is no majority; a minority could declare a healthy"
            " master dead",
        ),
    ]


def test_one_refusal_has_the_problems_of_all_files(tmp_path):
    configs = shutil.copytree(CONFIGS, tmp_path / "configs")
    wrong = {
        "components/redis.yaml": ("summary:", "sumary:"),
        "components/kafka_broker.yaml": ("summary:", "sumary:"),
        "names.yaml": ("group_prefix:", "group_prefx:"),
        "streams/clicks.yaml": ("format: json", "format: jsn"),
        "tables/campaigns.yaml": ("key:", "keys:"),
    }
    for file, (right, mistyped) in wrong.items():
        text = (configs / file).read_text()
        assert right in text
        (configs / file).write_text(text.replace(right, mistyped, 1))
    with pytest.raises(OperatorError) as refused:
        load_plan("local", configs)
    assert [file for file in wrong if f"{configs / file}: " not in refused.value.message] == []


def test_every_wrong_job_is_named(tmp_path):
    configs = shutil.copytree(CONFIGS, tmp_path / "configs")
    for job in ("sessions", "attribution"):
        path = configs / "jobs" / f"{job}.yaml"
        path.write_text(path.read_text().replace("settings:\n", "setings:\n"))
    with pytest.raises(OperatorError) as refused:
        load_plan("local", configs)
    for job in ("sessions", "attribution"):
        assert f"{job}.yaml: setings" in refused.value.message


def test_an_unknown_environment_names_those_there_are():
    with pytest.raises(OperatorError) as refused:
        load_plan("nowhere")
    assert "local" in str(refused.value.hint)


# --- any accepted plan survives the loss of any one host and of any one zone ----------------------

ZONES = [["a", "b", "c"], list("abcd"), list("abcde"), ["a", "b"]]
# Any of them may be changed to anything; most stay plausible, or hardly a plan would be accepted.
ANYTHING = {
    **{f"groups.{group}.hosts": st.integers(1, 9) for group in LOCAL["groups"]},
    "zones": st.sampled_from(ZONES),
    "replication.kafka.factor": st.integers(1, 6),
    "replication.kafka.min_insync": st.integers(1, 5),
    "replication.cassandra": st.integers(1, 6),
    "replication.hdfs": st.integers(1, 6),
    "replication.sentinel_quorum": st.integers(1, 6),
}


@st.composite
def environments(draw):
    content = Environment.model_validate(LOCAL).model_dump(mode="json")
    for key in draw(st.sets(st.sampled_from(sorted(ANYTHING)), max_size=5)):
        place = content
        *folders, last = key.split(".")
        for folder in folders:
            place = place[folder]
        place[last] = draw(ANYTHING[key])
    return content


def stopped_by_losing(plan: Plan, lost: set[str]) -> list[str]:
    """An oracle of its own: what no longer works when these hosts are gone."""

    def all_of(service: str) -> list:
        return plan.hosts_of(service)

    def left(service: str) -> list:
        return [host for host in all_of(service) if host.name not in lost]

    def replicas_left(service: str, factor: int) -> int:
        """The fewest live replicas of a partition that is spread over zones as well as can be."""
        per_zone = Counter(host.zone for host in all_of(service))
        replicas = Counter()
        for _ in range(factor):
            zone = min(per_zone, key=lambda z: (replicas[z] >= per_zone[z], replicas[z], z))
            replicas[zone] += 1
        zones_hit = {host.zone for host in all_of(service) if host.name in lost}
        return factor - max([replicas[zone] for zone in zones_hit], default=0)

    stopped = [
        service
        for service in ("zookeeper", "kafka_controller", "journalnode", "redis_sentinel")
        if len(left(service)) <= len(all_of(service)) // 2
    ]
    stopped += [
        service
        for service in ("namenode", "resourcemanager", "insight_api", "job_gateway", "nodemanager")
        if not left(service)
    ]
    if len(left("redis_sentinel")) < plan.replication.sentinel_quorum:
        stopped.append("sentinel quorum")
    if len(left("redis")) < 2:
        stopped.append("redis takes no writes")
    kafka = plan.replication.kafka
    if replicas_left("kafka_broker", kafka.factor) < kafka.min_insync:
        stopped.append("kafka refuses acks=all")
    if replicas_left("cassandra", plan.replication.cassandra) <= plan.replication.cassandra // 2:
        stopped.append("cassandra has no quorum")
    if replicas_left("datanode", plan.replication.hdfs) < 1:
        stopped.append("hdfs loses blocks")
    return stopped


@settings(max_examples=150, suppress_health_check=[HealthCheck.filter_too_much])
@given(environments())
def test_an_accepted_plan_survives_any_host_and_any_zone(content):
    try:
        plan = plan_of(content)
    except OperatorError:
        assume(False)
    for host in plan.hosts:
        assert stopped_by_losing(plan, {host.name}) == []
    for zone in plan.zones:
        assert stopped_by_losing(plan, {h.name for h in plan.hosts if h.zone == zone}) == []


@given(st.integers(0, 4))
def test_a_host_added_to_a_group_moves_no_other_host(more):
    before = {host.name: host.address for host in plan_of(LOCAL).hosts}
    content = changed("groups.worker.hosts", 3 + more)
    after = {host.name: host.address for host in plan_of(content).hosts}
    assert before.items() <= after.items()
    assert len(set(after.values())) == len(after)


@pytest.mark.parametrize("environment", ["local", "dev", "prod"])
def test_a_driver_can_avoid_the_hosts_of_two_others(environment):
    services = load_plan(environment).services
    settings = services["resourcemanager"].settings["yarn-site.xml"]
    share = settings["yarn.resourcemanager.am-scheduling.node-blacklisting-disable-threshold"]
    avoided = 2  # YARN forgets them all once they are more than the share
    assert avoided <= share * len(services["nodemanager"].hosts)


def test_what_every_host_runs_counts_on_every_host():
    plan = load_plan("local")
    assert plan.services["node_exporter"].hosts == [host.name for host in plan.hosts]
    small = changed("groups.redis.memory", plan.planned_memory(plan.host("redis-1")))
    assert plan_of(small)
    small["groups"]["redis"]["memory"] -= 1
    with pytest.raises(OperatorError, match=r"groups\.redis\.memory: \d+ MiB; its services need"):
        plan_of(small)


def test_equal_configuration_equal_digest():
    assert plan_of(LOCAL).digest == plan_of(LOCAL).digest
    assert plan_of(LOCAL).digest != plan_of(changed("groups.worker.hosts", 4)).digest


def test_the_test_stack_is_local_under_another_name_and_subnet():
    local, test = load_plan("local"), load_plan("test")
    assert test.network.subnet != local.network.subnet
    assert [host.services for host in test.hosts] == [host.services for host in local.hosts]
    assert not {v.name for h in test.hosts for v in h.volumes} & {
        v.name for h in local.hosts for v in h.volumes
    }


def test_the_inventory_has_each_host_in_its_group_zone_and_services():
    plan = load_plan("local")
    inventory = build_inventory(plan, {})
    for host in plan.hosts:
        for group in (host.group, f"zone_{host.zone}", *host.services):
            assert inventory[group]["hosts"].count(host.name) == 1
        assert inventory["_meta"]["hostvars"][host.name]["ansible_host"] == host.address


@pytest.mark.parametrize(
    ("part", "value", "complaint"),
    [
        ("kafka.topics.results", "events", "kafka: Value error, a name stands twice in topics"),
        ("kafka.stream_topics.clicks", "events", "a name stands twice in topics"),
        ("kafka.stream_topics.results", "more", "stream_topics: results stands in topics"),
        ("kafka.topics.events", "raw events", "kafka.topics.events: String should match"),
        ("zookeeper.jobs", "jobs/", "zookeeper.jobs: String should match"),
        ("cassandra.keyspce", "millrace", "cassandra.keyspce: Extra inputs"),
    ],
)
def test_a_wrong_name_is_refused_with_its_place(part, value, complaint, tmp_path):
    content = NAMES.model_dump()
    *folders, key = part.split(".")
    reduce(dict.__getitem__, folders, content)[key] = value
    (tmp_path / "names.yaml").write_text(yaml.safe_dump(content))
    with pytest.raises(OperatorError, match=complaint):
        load_names(tmp_path)


def test_a_topic_has_the_name_of_its_part(tmp_path):
    topics = NAMES.kafka.topics.model_copy(update={"results": "insights"})
    names = NAMES.model_copy(update={"kafka": NAMES.kafka.model_copy(update={"topics": topics})})
    environment = Environment.model_validate(LOCAL)
    plan = make_plan("local", environment, COMPONENTS, EVENTS, names, STREAMS, TABLES)
    assert "insights" in plan.topics
    assert "results" not in plan.topics
    assert build_inventory(plan, {})["all"]["vars"]["millrace"]["names"] == names.model_dump()


def test_every_part_has_its_topic():
    content = EVENTS.model_dump()
    del content["topics"]["replay_progress"]
    refused_topics(content, "and nothing else: replay_progress")


def test_a_topic_has_partitions_for_the_profile():
    content = EVENTS.model_dump()
    del content["topics"]["clicks"]["partitions"]["small"]
    refused_topics(content, r"events.yaml: topics.clicks.partitions: none for profile small")


def refused_topics(content, complaint):
    environment = Environment.model_validate(LOCAL)
    events = Events.model_validate(content)
    with pytest.raises(OperatorError, match=complaint):
        make_plan("local", environment, COMPONENTS, events, NAMES, STREAMS, TABLES)


def test_a_job_is_behind_in_all_topics_that_it_reads():
    settings = COMPONENTS["spark"].settings
    read = Setting(value=["impressions", "clicks"], why="because it is a test", source="a test")
    spark = with_jobs(COMPONENTS["spark"], {"mine": settings["traffic"] | {"streams": read}})
    environment = Environment.model_validate(LOCAL)
    plan = make_plan(
        "local", environment, COMPONENTS | {"spark": spark}, EVENTS, NAMES, STREAMS, TABLES
    )
    assert plan.topics_of("mine") == ["ad-impressions", "ad-clicks"]
    assert plan.topics_of("traffic") == ["events"]
    assert plan.topics["ad-clicks"].partitions == 3


def test_an_environment_that_promises_more_than_its_jobs_take_is_refused():
    spark = load_plan("local").spark.settings
    most, headroom = spark.events_per_second("archive"), load_assumptions()["headroom"]

    def environment(events_per_second):
        load = {"events_per_second": events_per_second, "bytes": 240}
        return changed("applications", {"insights": ["archive", "traffic"]}) | {"load": load}

    assert plan_of(environment(int(most / headroom))).jobs == ["archive", "traffic"]
    with pytest.raises(
        OperatorError, match=rf"the job archive takes: {most:,} \(max_events_per_second"
    ):
        plan_of(environment(int(most / headroom) + 1))


def test_a_job_may_take_less_than_the_others():
    settings = COMPONENTS["spark"].settings
    slower = Setting(value=7, why="because it is a test", source="a test")
    mine = settings["traffic"] | {"max_events_per_second": slower}
    spark = settings_of(with_jobs(COMPONENTS["spark"], {"mine": mine}), "small")
    [problem] = rate_problems(spark, ["mine", "traffic"], 8, 1.0)
    assert "the job mine takes: 7 " in problem


@pytest.mark.parametrize(
    ("changes", "problems"),
    [
        ({"checkpoint": "mine_2", "keep_days": 7300}, []),
        (
            {"checkpoint": "mine-2"},
            ["job mine: checkpoint 'mine-2' names its table, too: at most 44 of a-z, 0-9 and _,"],
        ),
        ({"checkpoint": "m" * 45}, ["names its table, too"]),
        ({"checkpoint": "traffic"}, ["jobs mine, traffic: each has the checkpoint traffic; give"]),
        ({"keep_days": 7301}, ["job mine: keep_days 7,301: Cassandra keeps a row for 20 years"]),
    ],
)
def test_what_no_store_could_take_is_refused(changes, problems):
    settings = COMPONENTS["spark"].settings
    own = {
        name: Setting(value=value, why="because it is a test", source="a test")
        for name, value in ({"checkpoint": "mine"} | changes).items()
    }
    jobs = {"mine": settings["traffic"] | own}
    spark = settings_of(with_jobs(COMPONENTS["spark"], jobs), "small")
    found = list(store_problems(spark, ["mine", "traffic"]))
    assert len(found) == len(problems)
    assert all(part in problem for part, problem in zip(problems, found, strict=True))


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"checkpoint": "../traffic"}, "checkpoint '../traffic' is no name of a folder"),
        ({"pages_keep_days": 9000}, "pages_keep_days 9,000: Cassandra keeps"),
    ],
)
def test_a_program_s_checkpoint_and_ages_are_looked_at_as_well(changes, part):
    settings = COMPONENTS["spark"].settings
    own = {
        name: settings["traffic"][name].model_copy(update={"value": value})
        for name, value in changes.items()
    }
    changed = settings | {"traffic": settings["traffic"] | own}
    spark = COMPONENTS["spark"].model_copy(update={"settings": changed})
    [problem] = store_problems(settings_of(spark, "small"), ["archive", "traffic"])
    assert part in problem


def test_versions_of_a_lookup_table_are_kept_as_long_as_cassandra_can():
    campaigns = TABLES["campaigns"]
    ever = campaigns.keep_days.model_copy(update={"value": {"small": 1, "standard": 7301}})
    tables = TABLES | {"campaigns": campaigns.model_copy(update={"keep_days": ever})}
    with pytest.raises(OperatorError, match=r"campaigns\.yaml: keep_days: 7,301: Cassandra keeps"):
        make_plan(
            "local", Environment.model_validate(LOCAL), COMPONENTS, EVENTS, NAMES, STREAMS, tables
        )


def test_the_stream_that_traffic_counts_keeps_all_its_records():
    events = STREAMS["events"].model_copy(update={"deduplicate_by": "event_id"})
    inputs = (COMPONENTS, EVENTS, NAMES, STREAMS | {"events": events}, TABLES)
    with pytest.raises(
        OperatorError, match=r"events\.yaml: deduplicate_by: the job traffic counts"
    ):
        make_plan("local", Environment.model_validate(LOCAL), *inputs)
    without = Environment.model_validate(changed("applications", {"insights": ["archive"]}))
    assert make_plan("local", without, *inputs).streams["events"].deduplicate_by == "event_id"


def test_a_setting_of_another_type_is_refused_with_its_place():
    traffic = COMPONENTS["spark"].settings["traffic"]
    wrong = traffic["watermark_seconds"].model_copy(update={"value": "1d"})
    settings = COMPONENTS["spark"].settings | {"traffic": traffic | {"watermark_seconds": wrong}}
    spark = COMPONENTS["spark"].model_copy(update={"settings": settings})
    environment = Environment.model_validate(LOCAL)
    with pytest.raises(OperatorError, match=r"spark\.yaml: traffic\.watermark_seconds: Input"):
        make_plan(
            "local", environment, COMPONENTS | {"spark": spark}, EVENTS, NAMES, STREAMS, TABLES
        )
