"""A workload on Flink SQL, in an environment of its own. Runs until it is ended.

Its one argument is JSON: brokers, events, ads, results, producer, consumer, run, folder, jars,
settings, trigger_ms, redis, function and the file of statements, separated by empty lines, the last
of which is the query.
"""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from pyflink.common import Configuration
from pyflink.table import EnvironmentSettings, TableEnvironment

SOURCE = """
  'connector' = 'kafka', 'topic' = '{events}', 'properties.bootstrap.servers' = '{brokers}',
  'properties.group.id' = '{run}', 'scan.startup.mode' = 'earliest-offset', 'format' = 'json'
"""
SINK = """
  'connector' = 'kafka', 'topic' = '{results}', 'properties.bootstrap.servers' = '{brokers}',
  'format' = 'json', 'sink.delivery-guarantee' = 'exactly-once',
  'sink.transactional-id-prefix' = '{run}', 'properties.transaction.timeout.ms' = '600000'
"""


def main(asked: dict[str, Any]) -> None:
    settings = Configuration()
    for key, value in asked["settings"].items():
        settings.set_string(key, value)
    folder = Path(asked["folder"])
    settings.set_string("execution.checkpointing.interval", f"{asked['trigger_ms']} ms")
    settings.set_string("execution.checkpointing.dir", (folder / "checkpoints").as_uri())
    settings.set_string("pipeline.jars", ";".join(Path(jar).as_uri() for jar in asked["jars"]))
    settings.set_string(
        "pipeline.global-job-parameters", f"ads:{asked['ads']},redis:{asked['redis']}"
    )
    table = TableEnvironment.create(
        EnvironmentSettings.new_instance().in_streaming_mode().with_configuration(settings).build()
    )
    source = ", ".join([SOURCE.format(**asked), *properties(asked["consumer"])])
    sink = ", ".join([SINK.format(**asked), *properties(asked["producer"])])
    ends = {"source": source, "sink": sink, "function": asked["function"]}
    *first, query = Path(asked["statements"]).read_text().strip().split("\n\n")
    for statement in first:
        table.execute_sql(statement.format(**ends))
    table.execute_sql(query).wait()


def properties(given: dict[str, str]) -> Iterator[str]:
    """Of a Kafka client, as options of a table."""
    return (f"'properties.{key}' = '{value}'" for key, value in given.items())


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
