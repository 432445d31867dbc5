"""Models of everything under ``configs/``, and their loading; a refusal names file and key.

Each of these imports only what stands before it:

model.py          what all models are made of
load.py           a file is read and checked
names.py          what several programs have to call the same
component.py      services, who calls them, their memory and settings
topics.py         Kafka's topics
aws.py            where on AWS, on what machines and disks
environment.py    what runs where
streams.py        what a record of a stream must be
lookup_tables.py  facts that operators change while jobs run
jobs.py           jobs of one file: where they are, and their settings
alerts.py         what is worth an operator's attention
panels.py         what is worth looking at
"""

from millrace.config.aws import (
    INCLUDED_IOPS,
    INCLUDED_THROUGHPUT,
    MOST_GIBIBYTES,
    Aws,
    Disk,
    Image,
    SignIn,
    State,
)
from millrace.config.component import (
    ENTRANCE,
    OPERATOR,
    OUTSIDE,
    PRODUCERS,
    READERS,
    THIS_MACHINE,
    Component,
    Memory,
    Metrics,
    PortRange,
    component_names,
    load_component,
    load_components,
)
from millrace.config.environment import (
    Environment,
    KafkaReplication,
    Replication,
    environment_names,
    load_environment,
)
from millrace.config.load import read_yaml, validate
from millrace.config.model import PROFILES, Model, Profile, Setting, absent
from millrace.config.names import Names, TopicNames, load_names
from millrace.config.topics import Events, Topic, load_events

__all__ = [
    "ENTRANCE",
    "INCLUDED_IOPS",
    "INCLUDED_THROUGHPUT",
    "MOST_GIBIBYTES",
    "OPERATOR",
    "OUTSIDE",
    "PRODUCERS",
    "PROFILES",
    "READERS",
    "THIS_MACHINE",
    "Aws",
    "Component",
    "Disk",
    "Environment",
    "Events",
    "Image",
    "KafkaReplication",
    "Memory",
    "Metrics",
    "Model",
    "Names",
    "PortRange",
    "Profile",
    "Replication",
    "Setting",
    "SignIn",
    "State",
    "Topic",
    "TopicNames",
    "absent",
    "component_names",
    "environment_names",
    "load_component",
    "load_components",
    "load_environment",
    "load_events",
    "load_names",
    "read_yaml",
    "validate",
]
