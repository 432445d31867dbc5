"""The query on Flink SQL, in an environment of its own. Runs until it is ended.

Its one argument is JSON: brokers, events, results, run, folder, jars, settings, sink.
"""

import json
import sys
from pathlib import Path
from typing import Any

from pyflink.common import Configuration
from pyflink.table import EnvironmentSettings, TableEnvironment

EVENTS = """CREATE TABLE events (id STRING, type STRING) WITH (
  'connector' = 'kafka', 'topic' = '{events}', 'properties.bootstrap.servers' = '{brokers}',
  'properties.group.id' = '{run}', 'scan.startup.mode' = 'earliest-offset', 'format' = 'json'
)"""
RESULTS = """CREATE TABLE results (id STRING) WITH (
  'connector' = 'kafka', 'topic' = '{results}', 'properties.bootstrap.servers' = '{brokers}',
  {options}, 'format' = 'json'
)"""
QUERY = "INSERT INTO results SELECT id FROM events WHERE type = 'view'"


def main(asked: dict[str, Any]) -> None:
    settings = Configuration()
    for key, value in asked["settings"].items():
        settings.set_string(key, value)
    settings.set_string(
        "execution.checkpointing.dir", (Path(asked["folder"]) / "checkpoints").as_uri()
    )
    settings.set_string("pipeline.jars", ";".join(Path(jar).as_uri() for jar in asked["jars"]))
    table = TableEnvironment.create(
        EnvironmentSettings.new_instance().in_streaming_mode().with_configuration(settings).build()
    )
    options = ", ".join(f"'{key}' = '{value}'" for key, value in asked["sink"].items())
    for statement in (EVENTS, RESULTS):
        table.execute_sql(statement.format(**asked, options=options))
    table.execute_sql(QUERY).wait()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
