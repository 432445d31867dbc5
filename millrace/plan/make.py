"""The planner: configuration in, a plan out. Pure: it reads no clock, no network, no cluster.

The plan says what runs where: hosts, zones, addresses, ports, memory, tuned settings. Pulumi makes
its hosts, Ansible makes its services; none of them decides anything again.
"""

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from millrace.common.errors import OperatorError, Problems
from millrace.common.paths import CONFIGS, trial_jobs
from millrace.config import (
    Component,
    Environment,
    Events,
    Names,
    Profile,
    component_names,
    load_components,
    load_environment,
    load_events,
    load_names,
)
from millrace.config.jobs import archives, folders_of, load_job_settings, on_trial, with_jobs
from millrace.config.jobs import problems as job_problems
from millrace.config.lookup_tables import Table, load_tables
from millrace.config.streams import Stream, load_streams
from millrace.plan import addresses, availability, aws, receivers, storage
from millrace.plan.capacity import load_assumptions
from millrace.plan.edges import edges
from millrace.plan.model import Plan
from millrace.plan.parts import (
    Endpoint,
    Endpoints,
    Host,
    MachinesPlan,
    Service,
    SharedSettings,
    TopicPlan,
    unit,
)
from millrace.plan.spark import (
    SparkPlan,
    SparkSettings,
    rate_problems,
    real_time_problems,
    settings_of,
    store_problems,
)
from millrace.plan.streams import plan_stream
from millrace.plan.streams import problems as stream_problems
from millrace.plan.tables import plan_table
from millrace.plan.tables import problems as table_problems

# Components that aren't a service on a host but configure one or more of them.
SHARED_COMPONENTS = ("base", "hadoop", "spark")


def load_plan(name: str, configs: Path = CONFIGS) -> Plan:
    """Returns the plan of the environment ``configs/environments/<name>.yaml``.

    Raises OperatorError when files are wrong, with the problems of all of them, or when the
    topology can't be highly available.
    """
    return plan_environment(name, on_trial(load_environment(name, configs), trial_jobs()), configs)


def plan_environment(name: str, environment: Environment, configs: Path = CONFIGS) -> Plan:
    """Returns the plan of an environment whose other files are those of ``configs``.

    Raises OperatorError as `load_plan`.
    """
    services = {s for group in environment.groups for s in environment.services(group)}
    wanted = [*sorted(services & component_names(configs)), *SHARED_COMPONENTS]
    problems = Problems()
    with problems.caught():
        components = load_components(wanted, configs)
    with problems.caught():
        events = load_events(configs)
    with problems.caught():
        names = load_names(configs)
    with problems.caught():
        streams = load_streams(configs)
    with problems.caught():
        folders = folders_of(environment)
        tables = load_tables(folders, configs)
    problems.refuse()
    spark = components["spark"]
    jobs = load_job_settings(streams, folders, configs) | archives(spark, streams)
    components["spark"] = with_jobs(spark, jobs)
    return make_plan(name, environment, components, events, names, streams, tables)


def make_plan(
    name: str,
    environment: Environment,
    components: Mapping[str, Component],
    events: Events,
    names: Names,
    streams: Mapping[str, Stream],
    tables: Mapping[str, Table],
) -> Plan:
    """Returns the plan of an environment.

    Raises OperatorError for a topology that one dead host or zone would stop, and for whatever else
    couldn't work, with every problem that can be found at once.
    """
    cluster = f"millrace-{name}"
    problems = Problems()
    problems.add(_problems(name, environment, components, events, names, streams, tables))
    problems.refuse()
    hosts = list(addresses.place_hosts(cluster, environment, components))
    return Plan(
        environment=name,
        extends=environment.extends,
        cluster=cluster,
        provider=environment.provider,
        profile=environment.profile,
        drills=environment.drills,
        zones=environment.zones,
        names=names,
        network=addresses.plan_network(environment),
        hosts=hosts,
        services={
            service: _service(service, components[service], hosts, environment.profile)
            for service in sorted({s for host in hosts for s in host.services})
        },
        base=_shared(components["base"], environment.profile),
        hadoop=_shared(components["hadoop"], environment.profile),
        spark=SparkPlan(
            distribution=components["spark"].distribution,
            jvm=_jvm(components["spark"], environment.profile),
            settings=settings_of(components["spark"], environment.profile),
        ),
        topics=_topics(events, names, environment),
        streams={
            stream: plan_stream(declared, names.kafka.parts[declared.topic], environment.profile)
            for stream, declared in streams.items()
        },
        tables={table: plan_table(rule, environment.profile) for table, rule in tables.items()},
        limits={key: limit.at(environment.profile) for key, limit in events.limits.items()},
        replication=environment.replication,
        applications=environment.applications,
        receiver=environment.receiver,
        job_folders=environment.job_folders,
        endpoints=_endpoints(hosts, components),
        edges=edges(environment, components),
        aws=aws.plan_aws(cluster, environment, components, hosts),
        machines=_machines(environment),
    )


def _problems(
    name: str,
    environment: Environment,
    components: Mapping[str, Component],
    events: Events,
    names: Names,
    streams: Mapping[str, Stream],
    tables: Mapping[str, Table],
) -> Iterator[str]:
    """Says why there can be no such plan, each time with file and key.

    What can't be judged before something else is right stands below an ``if``.
    """
    cluster, spark = f"millrace-{name}", components["spark"]

    def in_environment(problems: Iterable[str]) -> Iterator[str]:
        return (f"configs/environments/{name}.yaml: {problem}" for problem in problems)

    unplaced = list(addresses.problems(environment))
    unnamed = list(events.problems(names.kafka, environment.profile))
    undeclared = list(job_problems(environment, spark))
    yield from in_environment(unplaced)
    yield from (f"configs/components/events.yaml: {problem}" for problem in unnamed)
    yield from in_environment(undeclared)
    yield from in_environment(receivers.problems(environment.receiver))
    yield from table_problems(tables, spark)
    if not unplaced:
        hosts = list(addresses.place_hosts(cluster, environment, components))
        yield from in_environment(availability.problems(environment, components, hosts))
        if not unnamed and all(s in components for host in hosts for s in host.services):
            topics, sent = _topics(events, names, environment), names.kafka.topics.events
            yield from in_environment(
                aws.problems(environment, components, hosts, topics, sent, cluster)
            )
    try:
        settings = settings_of(spark, environment.profile)
    except OperatorError as error:
        yield error.message
        return
    if not undeclared:
        yield from in_environment(_rate_problems(environment, settings))
        if not unplaced:
            reserved = _reserved_bytes(components, environment.profile)
            yield from in_environment(
                storage.problems(environment, settings, _jobs(environment), reserved)
            )
        yield from store_problems(settings, sorted(_jobs(environment)))
    unread = list(_stream_problems(environment, events, settings, streams))
    yield from unread
    if not (unread or unnamed):
        topics = _topics(events, names, environment)
        partitions = {
            stream: topics[names.kafka.parts[declared.topic]].partitions
            for stream, declared in streams.items()
        }
        yield from in_environment(
            real_time_problems(settings, environment.applications, partitions)
        )


def _rate_problems(environment: Environment, settings: SparkSettings) -> Iterator[str]:
    if environment.load:
        promised, headroom = environment.load.events_per_second, load_assumptions()["headroom"]
        yield from rate_problems(settings, sorted(_jobs(environment)), promised, headroom)


def _stream_problems(
    environment: Environment,
    events: Events,
    settings: SparkSettings,
    streams: Mapping[str, Stream],
) -> Iterator[str]:
    promised = environment.load.events_per_second if environment.load else None
    counted = settings.streams_of("traffic") if "traffic" in _jobs(environment) else []
    return stream_problems(streams, set(events.topics), promised, counted)


def _reserved_bytes(components: Mapping[str, Component], profile: Profile) -> int:
    """What HDFS leaves free on each of its disks."""
    if "datanode" not in components:
        return 0
    reserved = components["datanode"].settings["hdfs-site.xml"]["dfs.datanode.du.reserved"]
    return int(reserved.at(profile))


def _jobs(environment: Environment) -> set[str]:
    """Returns the jobs that any application runs."""
    return {job for jobs in environment.applications.values() for job in jobs}


def _machines(environment: Environment) -> MachinesPlan | None:
    if environment.machines is None:
        return None
    return MachinesPlan(**environment.machines.model_dump(exclude={"hosts"}))


def _service(name: str, component: Component, hosts: list[Host], profile: Profile) -> Service:
    return Service(
        hosts=[host.name for host in hosts if name in host.services],
        unit=unit(name),
        user=component.user or name,
        data=component.data,
        distribution=component.distribution,
        package=component.package,
        ports=component.ports,
        port_ranges=component.port_ranges,
        metrics=component.metrics,
        memory=component.memory[profile],
        jvm=_jvm(component, profile),
        settings=_settings(component, profile),
    )


def _shared(component: Component, profile: Profile) -> SharedSettings:
    return SharedSettings(
        distribution=component.distribution,
        jvm=_jvm(component, profile),
        settings=_settings(component, profile),
    )


def _jvm(component: Component, profile: Profile) -> list[str]:
    return [flag.value for flag in component.jvm if profile in flag.profiles]


def _settings(component: Component, profile: Profile) -> dict[str, dict[str, Any]]:
    return {
        file: {key: setting.at(profile) for key, setting in settings.items()}
        for file, settings in component.settings.items()
    }


def _topics(events: Events, names: Names, environment: Environment) -> dict[str, TopicPlan]:
    kafka = environment.replication.kafka
    return {
        names.kafka.parts[part]: TopicPlan(
            partitions=topic.partitions[environment.profile],
            replication=kafka.factor,
            config={"min.insync.replicas": str(kafka.min_insync)}
            | {key: _property(s.at(environment.profile)) for key, s in topic.config.items()},
        )
        for part, topic in events.topics.items()
    }


def _property(value: Any) -> str:
    """A value as Kafka writes it: ``true``, not ``True``."""
    return str(value).lower() if isinstance(value, bool) else str(value)


def _endpoints(hosts: list[Host], components: Mapping[str, Component]) -> Endpoints:
    def each(service: str, port: str) -> list[Endpoint]:
        if service not in components:
            return []
        number = components[service].ports[port]
        return [Endpoint(host.name, number) for host in hosts if service in host.services]

    return Endpoints(
        zookeeper=each("zookeeper", "client"),
        kafka=each("kafka_broker", "client"),
        kafka_controllers=each("kafka_controller", "controller"),
        cassandra=each("cassandra", "native"),
        sentinels=each("redis_sentinel", "client"),
        resourcemanagers=each("resourcemanager", "http"),
        namenodes=each("namenode", "http"),
        insights=each("edge_proxy", "insights"),
        intake=each("edge_proxy", "intake"),
    )
