"""What the collector's role makes of the plan, read by the collector itself."""

from pathlib import Path

from millrace_collector.settings import Settings

from millrace.plan import DATA_ROOT, load_plan
from millrace_shared.keys import COPY
from tests.playbooks import templated


def test_the_collector_reads_what_the_role_writes(tmp_path: Path) -> None:
    plan = load_plan("local")
    settings = Settings.model_validate_json(templated("collector", "config.json", plan, tmp_path))
    assert settings.streams.keys() == plan.streams.keys()
    assert settings.kafka["bootstrap.servers"] == "kafka-1:9092,kafka-2:9092,kafka-3:9092"
    assert settings.zookeeper == "coord-1:2181,coord-2:2181,coord-3:2181"
    assert (settings.znodes.keys, settings.znodes.doors) == (
        plan.names.zookeeper.keys,
        plan.names.zookeeper.doors,
    )
    assert (settings.host, settings.all_doors) == ("edge-2", 2)
    # Where `millrace keys` looks for it, should ZooKeeper lose the keys.
    assert settings.keys_file == Path(f"{DATA_ROOT}/{plan.services['collector'].unit}/{COPY}")
