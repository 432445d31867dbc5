"""The gateway's own configuration, as role job_gateway renders it."""

from dataclasses import dataclass
from pathlib import Path

from kazoo.client import KazooClient
from kazoo.retry import KazooRetry

from millrace_gateway.books.files import Files
from millrace_gateway.decide import Limits
from millrace_gateway.yarn import Yarn
from millrace_shared import strict
from millrace_shared.names import ZookeeperNames

PATH = Path("/etc/millrace/job-gateway/gateway.json")


@dataclass(frozen=True)
class Cassandra:
    """Where the jobs write their progress."""

    hosts: list[str]
    port: int
    datacenter: str
    keyspace: str


@dataclass(frozen=True)
class Kafka:
    """Where the jobs' lag can be asked; a job's consumer group is the prefix and its name."""

    brokers: str
    group_prefix: str


@dataclass(frozen=True)
class Upkeep:
    """See configs/components/job_gateway.yaml for why. ``application_logs`` is a folder of HDFS;
    systemd sees to ``memory_mb``, `millrace status` to ``overdue_hours``."""

    hour_utc: int
    overdue_hours: int
    timeout_seconds: float
    heap_mb: int
    memory_mb: int
    cores: int
    left_days: int
    application_logs: str


@dataclass(frozen=True)
class Settings:
    """``user`` is the owner of what jobs have in HDFS; ``account`` is that of this program, and
    ``environment`` is what whoever starts Spark has to have.
    """

    name: str  # of this gateway: its host
    zookeeper: str
    znodes: ZookeeperNames
    cassandra: Cassandra
    kafka: Kafka
    metrics_port: int
    resourcemanagers: list[str]
    namenodes: list[str]
    user: str
    account: str
    environment: dict[str, str]
    spark_submit: Path
    deployments: Path
    logs: Path
    drivers: int
    poll_seconds: float
    session_seconds: float
    request_timeout_seconds: float
    submit_timeout_seconds: float
    drain_timeout_seconds: float
    pause_max_seconds: float
    settled_seconds: float
    warm_timeout_seconds: float
    deploy_timeout_seconds: float
    recount_timeout_seconds: float
    catch_up_seconds: float
    upkeep: Upkeep

    @property
    def python(self) -> Path:
        """With the jobs' packages around it; `sys.executable` is the bare one behind it."""
        return self.spark_submit.with_name("python")

    @property
    def limits(self) -> Limits:
        return Limits(
            drivers=self.drivers,
            submit=self.submit_timeout_seconds,
            drain=self.drain_timeout_seconds,
            pause=self.pause_max_seconds,
            settled=self.settled_seconds,
            warm=self.warm_timeout_seconds,
            catch_up=self.catch_up_seconds,
        )

    def yarn(self) -> Yarn:
        """For one thread: it remembers who answered."""
        return Yarn(self.resourcemanagers, self.user, self.request_timeout_seconds)

    def files(self) -> Files:
        """For one thread: it remembers who answered."""
        return Files(self.namenodes, self.user, self.request_timeout_seconds)

    def connect(self) -> KazooClient:
        """A client that is connected; the caller closes it."""
        # Each command outlives the change of ZooKeeper's leader.
        retry = KazooRetry(max_tries=-1, max_delay=1, deadline=self.session_seconds)
        client = KazooClient(
            self.zookeeper, timeout=self.session_seconds, command_retry=retry, logger=None
        )
        client.start(timeout=self.session_seconds)
        return client


def load(path: Path = PATH) -> Settings:
    """The settings in a file. Raises Misconfigured, also where there is none."""
    return strict.load(Settings, path)
