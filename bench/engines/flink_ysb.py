"""YSB on Flink SQL, in an environment of its own. Runs until it is ended.

Its one argument is JSON: brokers, events, ads, results, run, folder, jars, settings, trigger_ms.
"""

import json
import sys
from pathlib import Path
from typing import Any

from pyflink.common import Configuration
from pyflink.table import EnvironmentSettings, TableEnvironment

EVENTS = """CREATE TABLE events (
  ad_id STRING, event_type STRING, event_time STRING,
  `at` AS TO_TIMESTAMP_LTZ(CAST(event_time AS BIGINT), 3), WATERMARK FOR `at` AS `at`
) WITH (
  'connector' = 'kafka', 'topic' = '{events}', 'properties.bootstrap.servers' = '{brokers}',
  'properties.group.id' = '{run}', 'scan.startup.mode' = 'earliest-offset', 'format' = 'json'
)"""
RESULTS = """CREATE TABLE results (
  campaign STRING, `start` BIGINT, `views` BIGINT
) WITH (
  'connector' = 'kafka', 'topic' = '{results}', 'properties.bootstrap.servers' = '{brokers}',
  'format' = 'json', 'sink.delivery-guarantee' = 'exactly-once',
  'sink.transactional-id-prefix' = '{run}', 'properties.transaction.timeout.ms' = '600000'
)"""
QUERY = """INSERT INTO results
SELECT campaign, 1000 * UNIX_TIMESTAMP(DATE_FORMAT(window_start, 'yyyy-MM-dd HH:mm:ss')), COUNT(*)
FROM TABLE(TUMBLE(
  TABLE `views`, DESCRIPTOR(`at`), INTERVAL '10' SECONDS))
GROUP BY window_start, window_end, campaign"""
VIEWS = """CREATE TEMPORARY VIEW `views` AS
SELECT campaign_of(ad_id) AS campaign, `at` FROM events WHERE event_type = 'view'"""


def main(asked: dict[str, Any]) -> None:
    settings = Configuration()
    for key, value in asked["settings"].items():
        settings.set_string(key, value)
    folder = Path(asked["folder"])
    settings.set_string("execution.checkpointing.interval", f"{asked['trigger_ms']} ms")
    settings.set_string("execution.checkpointing.dir", (folder / "checkpoints").as_uri())
    settings.set_string("pipeline.jars", ";".join(Path(jar).as_uri() for jar in asked["jars"]))
    settings.set_string("pipeline.global-job-parameters", f"ads:{asked['ads']}")
    table = TableEnvironment.create(
        EnvironmentSettings.new_instance().in_streaming_mode().with_configuration(settings).build()
    )
    table.execute_sql("CREATE TEMPORARY FUNCTION campaign_of AS 'CampaignOf' LANGUAGE JAVA")
    for statement in (EVENTS, RESULTS, VIEWS):
        table.execute_sql(statement.format(**asked))
    table.execute_sql(QUERY).wait()


if __name__ == "__main__":
    main(json.loads(sys.argv[1]))
