"""The planner: configuration in, a plan out. Pure: it reads no clock, no network, no cluster.

The plan says what runs where: hosts, zones, addresses, ports, memory, tuned settings. Pulumi makes
its hosts, Ansible makes its services; none of them decides anything again.
"""

from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

from millrace.common.errors import OperatorError
from millrace.common.paths import trial_jobs
from millrace.config import (
    Component,
    Environment,
    Events,
    Names,
    Profile,
    component_names,
    load_component,
    load_environment,
    load_events,
    load_names,
)
from millrace.jobs import archives, folders_of, load_job_settings, on_trial, with_jobs
from millrace.jobs import problems as job_refusals
from millrace.plan import addresses, availability, aws, receivers
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
from millrace.plan.spark import SparkPlan, rate_problems, real_time_problems, settings_of
from millrace.streams import Stream, load_streams, plan_stream
from millrace.streams import problems as stream_refusals
from millrace.tables import Table, load_tables, plan_table
from millrace.tables import problems as table_refusals

# Components that aren't a service on a host but configure one or more of them.
SHARED_COMPONENTS = ("base", "hadoop", "spark")


def load_plan(name: str) -> Plan:
    """The plan of the environment ``configs/environments/<name>.yaml``.

    Raises OperatorError when a file is wrong or the topology can't be highly available.
    """
    environment = on_trial(load_environment(name), trial_jobs())
    services = {s for group in environment.groups for s in environment.services(group)}
    known = component_names()
    components = {c: load_component(c) for c in sorted(services & known) + list(SHARED_COMPONENTS)}
    folders = folders_of(environment)
    streams, spark = load_streams(), components["spark"]
    jobs = load_job_settings(streams, folders) | archives(spark, streams)
    components["spark"] = with_jobs(spark, jobs)
    if problems := list(job_refusals(environment, components["spark"])):
        raise _refusal(name, problems)
    tables = load_tables(folders)
    if problems := list(table_refusals(tables, components["spark"])):
        raise OperatorError("\n".join(problems), "nothing was created or changed")
    return make_plan(name, environment, components, load_events(), load_names(), streams, tables)


def make_plan(
    name: str,
    environment: Environment,
    components: Mapping[str, Component],
    events: Events,
    names: Names,
    streams: dict[str, Stream],
    tables: Mapping[str, Table] = MappingProxyType({}),
) -> Plan:
    """The plan of an environment; refuses every topology that one dead host or zone would stop."""
    cluster = f"millrace-{name}"
    if problems := list(addresses.problems(environment)):
        raise _refusal(name, problems)
    hosts = list(addresses.place_hosts(cluster, environment, components))
    if problems := list(availability.problems(environment, components, hosts)):
        raise _refusal(name, problems)
    if problems := list(receivers.problems(environment.receiver)):
        raise _refusal(name, problems)
    if problems := list(events.problems(names.kafka, environment.profile)):
        where = "configs/components/events.yaml: "
        raise OperatorError(
            "\n".join(where + problem for problem in problems), "nothing was created or changed"
        )
    topics = _topics(events, names, environment)
    events_topic = names.kafka.topics.events
    if problems := list(
        aws.problems(environment, components, hosts, topics, events_topic, cluster)
    ):
        raise _refusal(name, problems)
    load = environment.load.events_per_second if environment.load else None
    spark = settings_of(components["spark"], environment.profile)
    jobs = sorted({job for hosted in environment.applications.values() for job in hosted})
    headroom = load_assumptions()["headroom"]
    if load and (problems := list(rate_problems(spark, jobs, load, headroom))):
        raise _refusal(name, problems)
    runs_traffic = "traffic" in jobs
    counted = spark.streams_of("traffic") if runs_traffic else []
    if problems := list(stream_refusals(streams, set(events.topics), load, counted)):
        raise OperatorError("\n".join(problems), "nothing was created or changed")
    partitions = {
        stream: topics[names.kafka.parts[declared.topic]].partitions
        for stream, declared in streams.items()
    }
    if problems := list(real_time_problems(spark, environment.applications, partitions)):
        raise _refusal(name, problems)
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
            settings=spark,
        ),
        topics=topics,
        streams={
            stream: plan_stream(declared, names.kafka.parts[declared.topic], environment.profile)
            for stream, declared in streams.items()
        },
        tables={table: plan_table(rule, environment.profile) for table, rule in tables.items()},
        limits={key: limit.at(environment.profile) for key, limit in events.limits.items()},
        replication=environment.replication,
        applications=environment.applications,
        receiver=environment.receiver,
        collector_keys=environment.collector_keys,
        job_folders=environment.job_folders,
        endpoints=_endpoints(hosts, components),
        edges=edges(environment, components),
        aws=aws.plan_aws(cluster, environment, components, hosts),
        machines=_machines(environment),
    )


def _refusal(name: str, problems: list[str]) -> OperatorError:
    where = f"configs/environments/{name}.yaml: "
    return OperatorError(
        "\n".join(where + problem for problem in problems), "nothing was created or changed"
    )


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
        insight_api=each("insight_api", "http"),
    )
