"""One local Spark for all tests of jobs, with the connectors that the hosts get."""

import tarfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.sql import DataFrame, SparkSession

from millrace.common.paths import ARTIFACTS
from millrace.plan import load_plan
from millrace.setup.artifacts import read_manifest
from millrace.setup.locks import lock_path, read_lock
from tests.jobs.samples import RECEIVED

# Tests are over before the second compiler would pay: a third less CPU.
JAVA_OPTIONS = "-XX:+UseSerialGC -XX:TieredStopAtLevel=1 -Xss4m"


@pytest.fixture(scope="session", autouse=True)
def _utc() -> Iterator[None]:
    """Rows come to Python in local time without a zone."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("TZ", "UTC")
        time.tzset()
        yield
    time.tzset()


@pytest.fixture(scope="session")
def connectors(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """The connectors' jars, out of the very tarball that hosts install."""
    names = {jar.filename for jar in read_lock(lock_path("spark"))}
    folder = tmp_path_factory.mktemp("jars")
    with tarfile.open(ARTIFACTS / read_manifest()["spark"]["file"]) as tar:
        members = [member for member in tar if Path(member.name).name in names]
        for member in members:
            member.name = Path(member.name).name
        tar.extractall(folder, members)  # Debian 12's Python knows no filters
    return sorted(folder.iterdir())


@pytest.fixture(scope="session")
def spark_settings(connectors: list[Path]) -> dict[str, str]:
    """Of a local Spark as small as tests need it; what bounds its libraries is that of hosts."""
    defaults = load_plan("local").spark.rendered()["settings"]["spark-defaults.conf"]
    options = defaults["spark.executor.extraJavaOptions"].split()
    limits = " ".join(option for option in options if option.startswith("-D"))
    return {
        "spark.jars": ",".join(map(str, connectors)),
        "spark.ui.enabled": "false",
        "spark.driver.memory": "1g",
        "spark.driver.extraJavaOptions": f"{JAVA_OPTIONS} {limits}",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.shuffle.partitions": "2",
        "spark.sql.adaptive.enabled": "false",
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.databricks.delta.snapshotPartitions": "1",
        "spark.sql.sources.parallelPartitionDiscovery.parallelism": "2",
    }


@pytest.fixture(scope="session")
def spark(
    _utc: None, spark_settings: dict[str, str], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[SparkSession]:
    warehouse = {"spark.sql.warehouse.dir": str(tmp_path_factory.mktemp("warehouse"))}
    settings = spark_settings | warehouse
    builder = SparkSession.builder.master("local[2]").appName("tests")
    session = builder.config(map=settings).getOrCreate()
    session.sparkContext.setLogLevel("ERROR")
    yield session
    session.stop()


@pytest.fixture(scope="session")
def records(spark: SparkSession) -> Callable[[list[bytes | None]], DataFrame]:
    """Kafka records with these values, at offsets 0, 1, 2, … of one partition."""

    def make(values: list[bytes | None]) -> DataFrame:
        rows = [(value, "events", 0, offset, RECEIVED, None) for offset, value in enumerate(values)]
        return spark.createDataFrame(
            rows,
            "value binary, topic string, partition int, offset bigint, timestamp timestamp,"
            " headers array<struct<key: string, value: binary>>",
        )

    return make
