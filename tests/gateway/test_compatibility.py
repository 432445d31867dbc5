"""A version that can't read a checkpoint is refused before anything is touched."""

import json
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import millrace_jobs
import pytest
from millrace_gateway import compatibility
from millrace_gateway.compatibility import Incompatible
from millrace_gateway.submit import Deployment
from millrace_jobs.contract import contract
from millrace_jobs.stream import Stream

import millrace_shared
from millrace.plan import load_plan
from tests.jobs.samples import settings_of

PARTS = {  # of two packages, all that a contract takes
    millrace_jobs: ("__init__", "contract", "kinds", "settings", "stream"),
    millrace_shared: ("__init__", "strict"),
}


def declared(topic: str, **more: Any) -> dict[str, Any]:
    """A stream as the plan has it."""
    return {"topic": topic, "event_time": "at", "record_bytes": 1, "fields": {}} | more


EVENTS = Stream.of("events", declared("events"))
ARCHIVE = settings_of("archive")


@pytest.fixture
def deployment(tmp_path: Path) -> Deployment:
    """The package as it is, with these settings."""
    with zipfile.ZipFile(tmp_path / "millrace_jobs.zip", "w") as package:
        for source, names in PARTS.items():
            folder = Path(source.__path__[0])
            for name in names:
                package.write(folder / f"{name}.py", f"{folder.name}/{name}.py")
    content = {
        "jobs": ["archive", "traffic"],
        "settings": load_plan("local").spark.rendered()["settings"],
        "streams": {"events": declared("events")},
    }
    (tmp_path / "insights.json").write_text(json.dumps(content))
    return Deployment("insights", "v2", tmp_path)


def test_a_contract_has_all_topics() -> None:
    shown = Stream.of("shown", declared("ad-impressions"))
    clicks = Stream.of("clicks", declared("ad-clicks", deduplicate_by="click_id"))
    avro = Stream.of("visits", declared("visits", avro_schema="{}"))
    assert contract("archive_visits", ARCHIVE, [avro])["schema of visits"] == "{}"
    raw = contract("mine", settings_of("sessions"), [EVENTS])
    assert "deduplicated" not in raw
    kept = contract("mine", settings_of("attribution"), [shown, clicks])
    assert kept["topic"] == "ad-impressions, ad-clicks"
    assert kept["deduplicated"] == "clicks by click_id"
    assert contract("archive_clicks", ARCHIVE, [clicks]).keys() == {
        "checkpoint",
        "topic",
        "fields of clicks",
    }


def registry(**changes: Any) -> Any:
    """ZooKeeper with the contract of a running traffic job that has these differences."""
    kept = {"traffic": contract("traffic", settings_of("traffic"), [EVENTS]) | changes}
    return SimpleNamespace(contract=kept.get)


def test_the_same_state_may_go_on(deployment: Deployment) -> None:
    compatibility.check(registry(), deployment)


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"hll_lg_k": 14}, "traffic: hll_lg_k was 14, would be 12"),
        ({"pages_tracked": 99}, "traffic: pages_tracked was 99, would be 6144"),
        ({"topic": "clicks"}, "traffic: topic was clicks, would be events"),
        ({"state key": "url string"}, "traffic: state key was url string, would be period"),
        ({"sessions": "gap"}, "traffic: sessions was gap, would be None"),
    ],
)
def test_another_state_is_refused_with_each_difference(
    deployment: Deployment, changes: dict[str, Any], line: str
) -> None:
    with pytest.raises(Incompatible) as refusal:
        compatibility.check(registry(**changes), deployment)
    assert line in str(refusal.value)
    assert "Nothing was changed" in str(refusal.value)
    assert "docs/new-state.md" in str(refusal.value)


def test_a_number_of_partitions_is_no_difference(deployment: Deployment) -> None:
    """As a version of before has it in its contract."""
    compatibility.check(registry(shuffle_partitions=4), deployment)


def test_another_checkpoint_has_nothing_to_keep_to(deployment: Deployment) -> None:
    compatibility.check(registry(checkpoint="traffic-1", hll_lg_k=14), deployment)


def test_a_package_that_tells_nothing_is_refused(deployment: Deployment) -> None:
    deployment.config.write_text("{}")
    with pytest.raises(Incompatible, match="doesn't tell its contracts"):
        compatibility.check(registry(), deployment)


def with_fields(**kinds: str) -> dict[str, Any]:
    fields = {name: {"type": kind, "required": False} for name, kind in kinds.items()}
    return contract("archive", ARCHIVE, [Stream.of("events", declared("events", fields=fields))])


@pytest.mark.parametrize(
    ("kept", "offered", "breaches"),
    [
        ({"status": "integer"}, {"status": "integer", "country": "text"}, []),
        ({"status": "integer", "country": "text"}, {"status": "integer"}, []),
        (
            {"status": "integer"},
            {"status": "long", "country": "text"},
            ["archive: fields of events: status was int, would be bigint"],
        ),
    ],
)
def test_fields_may_be_added_and_left_out_but_keep_their_types(
    kept: dict[str, str], offered: dict[str, str], breaches: list[str]
) -> None:
    found = compatibility.compare(
        {"archive": with_fields(**kept)}, {"archive": with_fields(**offered)}
    )
    assert found == breaches


def test_a_contract_of_before_knows_no_fields() -> None:
    kept = {"checkpoint": "archive", "topic": "events"}
    assert compatibility.compare({"archive": kept}, {"archive": with_fields(a="text")}) == []
