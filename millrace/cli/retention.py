"""What is kept how long: the table of docs/retention.md, read from where it is set. Pure, but for
reading the files that aren't in the plan."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from millrace.common.errors import OperatorError
from millrace.common.paths import ANSIBLE, REPO
from millrace.plan import Plan

SCHEMA = REPO / "spark-jobs" / "schema.cql"
IMAGE = REPO / "millrace" / "setup" / "image.sh"
DAEMON_LOGS = ANSIBLE / "roles" / "hadoop_config" / "templates" / "log4j-daemon.properties.j2"
CASSANDRA_LOGS = ANSIBLE / "roles" / "cassandra" / "templates" / "logback.xml.j2"
TABLE = re.compile(r"CREATE TABLE IF NOT EXISTS :keyspace\.(\w+) \(.*?\n\)([^;]*);", re.DOTALL)
TIME_TO_LIVE = re.compile(r"default_time_to_live = :(\w+)")
ONE_ROW = "for ever: one row a job"
# Tables whose rows are replaced, or are removed by whoever adds to them.
BOUNDED = {
    "job_progress": ONE_ROW,
    "job_work": ONE_ROW,
    "job_outputs": ONE_ROW,
    "lookup_pins": ONE_ROW,
    "lookup_versions": "the newest one; others for their table's keep_days",
}
DAY_MS = 86_400_000


@dataclass(frozen=True)
class Kept:
    what: str
    where: str
    how_long: str
    set_by: str


def retention_table(plan: Plan) -> str:
    rows = ["| what | where | kept | set by |", "|---|---|---|---|"]
    rows += [f"| {k.what} | {k.where} | {k.how_long} | {k.set_by} |" for k in _all(plan)]
    return "\n".join(rows) + "\n"


def _all(plan: Plan) -> Iterator[Kept]:
    yield from _topics(plan)
    yield from _files(plan)
    yield from _tables(plan)
    yield from _logs(plan)


def _topics(plan: Plan) -> Iterator[Kept]:
    for part, topic in plan.topics.items():
        ends = []
        if age := topic.config.get("retention.ms"):
            ends.append(f"{int(age) // DAY_MS} days")
        if size := topic.config.get("retention.bytes"):
            ends.append(f"{int(size) // 2**20:,} MiB a partition")
        if "compact" in topic.config.get("cleanup.policy", ""):
            ends.append("the last record of a key")
        yield Kept(f"topic of {part}", "Kafka", "; ".join(ends), "configs/components/events.yaml")


def _files(plan: Plan) -> Iterator[Kept]:
    spark = plan.spark.settings
    batches = (spark.defaults.model_extra or {})["spark.sql.streaming.minBatchesToRetain"]
    trash = plan.hadoop.settings["core-site.xml"]["fs.trash.interval"]
    where = "configs/components/spark.yaml"
    yield Kept("archives", "HDFS", f"{spark.archive.keep_days} days, by hand (below)", where)
    yield Kept("checkpoints", "HDFS", f"the last {batches} batches", where)
    yield Kept(
        "what was removed", "HDFS, trash", f"{trash // 60} h", "configs/components/hadoop.yaml"
    )
    snapshots = plan.services["zookeeper"].settings["zoo.cfg"]["autopurge.snapRetainCount"]
    yield Kept(
        "snapshots and their logs",
        "ZooKeeper",
        f"the last {snapshots}",
        "configs/components/zookeeper.yaml",
    )


def _tables(plan: Plan) -> Iterator[Kept]:
    spark = plan.spark.settings
    days = {
        "windows": spark.traffic.keep_days,
        "pages": spark.traffic.pages_keep_days,
        "letters": spark.archive.keep_days,
    }
    for name, options in TABLE.findall(SCHEMA.read_text()):
        if found := TIME_TO_LIVE.search(options):
            yield Kept(
                f"`{name}`", "Cassandra", f"{days[found[1]]} days", "configs/components/spark.yaml"
            )
        else:
            kept = BOUNDED.get(name, "for ever")
            yield Kept(f"`{name}`", "Cassandra", kept, "spark-jobs/schema.cql")
    for job in plan.jobs:
        if spark.is_declared(job):
            kept = (spark.job(job).model_extra or {})["keep_days"]
            yield Kept(
                f"rows of `{job}`", "Cassandra", f"{kept} days", "configs/jobs/defaults.yaml"
            )
    snapshots = plan.services["cassandra"].settings["cassandra.yaml"]["auto_snapshot_ttl"]
    yield Kept(
        "tables that were dropped", "Cassandra", snapshots, "configs/components/cassandra.yaml"
    )
    memory = plan.services["redis"].settings["redis.conf"]["maxmemory"]
    yield Kept("the live stream", "Redis", f"within {memory}", "configs/components/redis.yaml")


def _logs(plan: Plan) -> Iterator[Kept]:
    yarn = plan.services["nodemanager"].settings["yarn-site.xml"]
    files = yarn["yarn.nodemanager.log-aggregation.num-log-files-per-app"]
    hours = yarn["yarn.nodemanager.log-aggregation.roll-monitoring-interval-seconds"] // 3600
    where = "configs/components/nodemanager.yaml"
    yield Kept("logs of running applications", "HDFS", f"{files * hours} h", where)
    yield Kept("logs of ended applications", "HDFS", "until removed by hand (below)", "–")
    yield Kept(
        "files of failed containers",
        "workers",
        f"{yarn['yarn.nodemanager.delete.debug-delay-sec'] // 60} min",
        where,
    )
    daemon = DAEMON_LOGS.read_text()
    size, backups = _said(r"MaxFileSize=(\w+)", daemon), _said(r"MaxBackupIndex=(\w+)", daemon)
    yield Kept(
        "logs of Hadoop's daemons", "hosts", f"{backups} + 1 files of {size}", _path(DAEMON_LOGS)
    )
    cap = _said(r"<totalSizeCap>(\w+)<", CASSANDRA_LOGS.read_text())
    yield Kept("logs of Cassandra", "hosts", cap, _path(CASSANDRA_LOGS))
    journal = _said(r"SystemMaxUse=(\w+)", IMAGE.read_text())
    yield Kept("journal, with all other services' logs", "hosts of `local`", journal, _path(IMAGE))


def _said(pattern: str, text: str) -> str:
    found = re.search(pattern, text)
    if not found:
        raise OperatorError(f"docs/retention.md: nothing matches {pattern} any more")
    return found[1]


def _path(path: Path) -> str:
    return str(path.relative_to(REPO))
