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
DAEMON_LOGS = ANSIBLE / "roles" / "hadoop_config" / "templates" / "log4j-daemon.properties.j2"
CASSANDRA_LOGS = ANSIBLE / "roles" / "cassandra" / "templates" / "logback.xml.j2"
TABLE = re.compile(r"CREATE TABLE IF NOT EXISTS :keyspace\.(\w+) \(.*?\n\)([^;]*);", re.DOTALL)
TIME_TO_LIVE = re.compile(r"default_time_to_live = :(\w+)")
ONE_ROW = "for ever: one row a job"
# Tables whose rows are replaced, or are removed by whoever adds to them.
BOUNDED = {
    "job_progress": ONE_ROW,
    "job_states": ONE_ROW,
    "job_work": ONE_ROW,
    "job_outputs": ONE_ROW,
    "lookup_pins": ONE_ROW,
    "lookup_versions": "the newest one; others for their table's keep_days",
    "overlays": "for ever: one row for the rows of a job",
    "generations": "for ever: one row for each `millrace reconcile`",
}
DEFAULT = "its own default"
POSITIONS = "offsets.retention.minutes"
MINUTES_PER_DAY = 1_440


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
    yield from _figures(plan)


def _topics(plan: Plan) -> Iterator[Kept]:
    for part, topic in plan.topics.items():
        ends = {}
        if "retention.ms" in topic.config:
            ends["retention.ms"] = f"{topic.retention_days:g} days"
        if size := topic.config.get("retention.bytes"):
            ends["retention.bytes"] = f"{int(size) // 2**20:,} MiB a partition"
        if "compact" in topic.config.get("cleanup.policy", ""):
            ends["cleanup.policy"] = "the last record of a key"
        yield Kept(f"topic of {part}", "Kafka", "; ".join(ends.values()), _in("events.yaml", *ends))
    broker = plan.services["kafka_broker"].settings["broker.properties"]
    yield Kept(
        "positions of consumer groups",
        "Kafka",
        f"{broker[POSITIONS] // MINUTES_PER_DAY} days after the last commit",
        _in("kafka_broker.yaml", POSITIONS),
    )
    yield Kept("the controllers' log", "Kafka", "7 days or 100 MiB, behind a snapshot", DEFAULT)


def _files(plan: Plan) -> Iterator[Kept]:
    spark = plan.spark.settings
    defaults = spark.defaults.model_extra or {}
    table = "spark.databricks.delta.properties.defaults"
    replaced = f"{spark.defaults.replaced_days} days"
    log = defaults[f"{table}.logRetentionDuration"].removeprefix("interval ")
    batches = defaults["spark.sql.streaming.minBatchesToRetain"]
    left = plan.services["job_gateway"].settings["upkeep"]["left_days"]
    trash = plan.hadoop.settings["core-site.xml"]["fs.trash.interval"]
    snapshots = plan.services["zookeeper"].settings["zoo.cfg"]["autopurge.snapRetainCount"]
    for what, where, how_long, set_by in (
        ("archives", "HDFS", f"{spark.archive.keep_days} days", _in("spark.yaml", "keep_days")),
        (
            "their files that were merged or have expired",
            "HDFS",
            f"{replaced} more",
            _in("spark.yaml", "deletedFileRetentionDuration"),
        ),
        ("their logs", "HDFS", log, _in("spark.yaml", "logRetentionDuration")),
        (
            "checkpoints: offsets, commits, state",
            "HDFS",
            f"the last {batches} batches",
            _in("spark.yaml", "minBatchesToRetain"),
        ),
        (
            "rehearsals' checkpoints of drivers that ended",
            "HDFS",
            f"{left} days",
            _in("job_gateway.yaml", "left_days"),
        ),
        (
            "what was removed",
            "HDFS, trash",
            f"{trash // 60} h",
            _in("hadoop.yaml", "fs.trash.interval"),
        ),
        ("the NameNodes' edits", "masters, JournalNodes", "a million, and 2 images", DEFAULT),
        (
            "snapshots and their logs",
            "ZooKeeper",
            f"the last {snapshots}",
            _in("zookeeper.yaml", "autopurge.snapRetainCount"),
        ),
        ("applications that ended", "ZooKeeper", "the last 1,000", DEFAULT),
    ):
        yield Kept(what, where, how_long, set_by)


def _tables(plan: Plan) -> Iterator[Kept]:
    spark = plan.spark.settings
    days = {
        "windows": (spark.traffic.keep_days, "keep_days"),
        "pages": (spark.traffic.pages_keep_days, "pages_keep_days"),
        "letters": (spark.archive.keep_days, "keep_days"),
    }
    for name, options in TABLE.findall(SCHEMA.read_text()):
        if found := TIME_TO_LIVE.search(options):
            kept, setting = days[found[1]]
            yield Kept(f"`{name}`", "Cassandra", f"{kept} days", _in("spark.yaml", setting))
        else:
            how_long = BOUNDED.get(name, "for ever")
            yield Kept(f"`{name}`", "Cassandra", how_long, _path(SCHEMA))
    for job in plan.jobs:
        if spark.keeps_rows(job):
            yield Kept(
                f"rows of `{job}`",
                "Cassandra",
                f"{spark.job(job).keep_days} days",
                "`keep_days`, configs/jobs/defaults",
            )
    cassandra = plan.services["cassandra"].settings["cassandra.yaml"]
    for what, setting in (
        ("tables that were dropped", "auto_snapshot_ttl"),
        ("writes for a node that is away", "max_hint_window"),
    ):
        yield Kept(what, "Cassandra", cassandra[setting], _in("cassandra.yaml", setting))
    memory = plan.services["redis"].settings["redis.conf"]["maxmemory"]
    yield Kept("the live stream", "Redis", f"within {memory}", _in("redis.yaml", "maxmemory"))
    yield Kept(
        "its append-only file", "Redis", "rewritten at twice its size, 64 MB at least", DEFAULT
    )


def _logs(plan: Plan) -> Iterator[Kept]:
    yarn = plan.services["nodemanager"].settings["yarn-site.xml"]
    left = plan.services["job_gateway"].settings["upkeep"]["left_days"]
    for what, how_long, setting in (
        ("logs of a running container", "{} MiB", "container-log-monitor.total-size-limit-bytes"),
        ("files of failed containers", "{} min", "delete.debug-delay-sec"),
        ("files that applications bring along", "{} MiB", "localizer.cache.target-size-mb"),
    ):
        unit = {"bytes": 2**20, "sec": 60, "mb": 1}[setting.rpartition("-")[2]]
        kept = how_long.format(yarn[f"yarn.nodemanager.{setting}"] // unit)
        yield Kept(what, "workers", kept, _in("nodemanager.yaml", setting))
    yield Kept(
        "logs of applications that ended",
        "HDFS",
        f"{left} days",
        _in("job_gateway.yaml", "left_days"),
    )
    daemon = DAEMON_LOGS.read_text()
    size, backups = _said(r"MaxFileSize=(\w+)", daemon), _said(r"MaxBackupIndex=(\w+)", daemon)
    yield Kept(
        "logs of Hadoop's daemons", "hosts", f"{backups} + 1 files of {size}", _path(DAEMON_LOGS)
    )
    cap = _said(r"<totalSizeCap>(\w+)<", CASSANDRA_LOGS.read_text())
    yield Kept("logs of Cassandra", "hosts", cap, _path(CASSANDRA_LOGS))
    flags = " ".join(plan.base.jvm)
    files, each = _said(r"filecount=(\w+)", flags), _said(r"filesize=(\w+)", flags)
    kept = f"{files} + 1 files of {each} a service"
    yield Kept("logs of garbage collectors", "hosts", kept, _in("base.yaml", "-Xlog"))
    kept = "the first one of a service, until you remove it"
    yield Kept("heap dumps", "hosts", kept, _in("base.yaml", "-XX:HeapDumpPath"))
    journal = plan.base.settings["journald.conf"]
    yield Kept(
        "journal, with all other services' logs",
        "hosts",
        f"{journal['MaxRetentionSec']}; {journal['SystemMaxUse']}",
        _in("base.yaml", "MaxRetentionSec", "SystemMaxUse"),
    )


def _in(file: str, *settings: str) -> str:
    """Names settings in a file of a component."""
    return f"{', '.join(f'`{name}`' for name in settings)}, configs/components/{file}"


def _figures(plan: Plan) -> Iterator[Kept]:
    flags = plan.services["prometheus_server"].settings["flags"]
    age, size = flags["storage.tsdb.retention.time"], flags["storage.tsdb.retention.size"]
    settings = ("storage.tsdb.retention.time", "storage.tsdb.retention.size")
    yield Kept(
        "figures", "each edge host", f"{age}; {size}", _in("prometheus_server.yaml", *settings)
    )
    yield Kept("silences, and what was told", "each edge host", "5 days", DEFAULT)


def _said(pattern: str, text: str) -> str:
    found = re.search(pattern, text)
    if not found:
        raise OperatorError(f"docs/retention.md: nothing matches {pattern} any more")
    return found[1]


def _path(path: Path) -> str:
    return str(path.relative_to(REPO))
