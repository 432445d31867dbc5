"""A version that can't read a checkpoint is refused before anything is touched."""

import json
import zipfile
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import millrace_jobs
import pytest
from millrace_gateway import commands, compatibility, declarations
from millrace_gateway.compatibility import Incompatible
from millrace_gateway.decide import Intent
from millrace_gateway.submit import Deployment
from millrace_jobs.contract import contract
from millrace_jobs.stream import Stream

SETTINGS = {
    "common": {"stream": "events"},
    "traffic": {
        "checkpoint": "traffic",
        "hll_lg_k": 12,
        "pages_tracked": 6144,
    },
    "archive": {"checkpoint": "archive"},
}


def declared(topic: str, **more: Any) -> dict[str, Any]:
    """A stream as the plan has it."""
    return {"topic": topic, "event_time": "at", "record_bytes": 1, "fields": {}} | more


EVENTS = Stream.of("events", declared("events"))


@pytest.fixture
def deployment(tmp_path: Path) -> Deployment:
    """The package as it is, with these settings."""
    source = Path(millrace_jobs.__file__).parent
    with zipfile.ZipFile(tmp_path / "millrace_jobs.zip", "w") as package:
        for name in ("__init__.py", "config.py", "contract.py", "kinds.py", "stream.py"):
            package.write(source / name, f"millrace_jobs/{name}")
    content = {
        "jobs": ["archive", "traffic"],
        "settings": SETTINGS,
        "streams": {"events": declared("events")},
    }
    (tmp_path / "insights.json").write_text(json.dumps(content))
    return Deployment("insights", "v2", tmp_path)


def test_a_contract_has_all_topics_and_how_far_apart_partners_may_be() -> None:
    settings = {"checkpoint": "a", "window_seconds": 60, "buckets": 1}
    shown = Stream.of("shown", declared("ad-impressions"))
    clicks = Stream.of("clicks", declared("ad-clicks", deduplicate_by="click_id"))
    avro = Stream.of("visits", declared("visits", avro_schema="{}"))
    assert contract("archive_visits", settings, [avro])["schema of visits"] == "{}"
    raw = contract("mine", settings, [EVENTS])
    assert not raw.keys() & {"join_seconds", "deduplicated"}
    kept = contract("mine", settings | {"join_seconds": 5}, [shown, clicks])
    assert (kept["topic"], kept["join_seconds"]) == ("ad-impressions, ad-clicks", 5)
    assert kept["deduplicated"] == "clicks by click_id"
    assert contract("archive_clicks", {"checkpoint": "a"}, [clicks]).keys() == {
        "checkpoint",
        "topic",
    }


def registry(**changes: Any) -> Any:
    """ZooKeeper with the contract of a running traffic job that has these differences."""
    kept = {"traffic": contract("traffic", SETTINGS["traffic"], [EVENTS]) | changes}
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


def packed(folder: Path, script: str | None) -> Deployment:
    """A version whose analysis is this program; None if it has none."""
    with zipfile.ZipFile(folder / "millrace_jobs.zip", "w") as package:
        package.writestr("millrace_jobs/__init__.py", "")
        if script is not None:
            package.writestr("millrace_jobs/check.py", script)
    (folder / "insights.json").write_text(json.dumps({"jobs": ["theirs"]}))
    return Deployment("insights", "v2", folder)


@pytest.mark.parametrize("script", ["", None])  # None: a version that is older than the analysis
def test_jobs_that_can_be_run_may(tmp_path: Path, script: str | None) -> None:
    declarations.check(packed(tmp_path, script))


@pytest.mark.parametrize(
    ("script", "told"),
    [
        ("print('theirs.sql:3:8: no such column'); raise SystemExit(1)", "theirs.sql:3:8: no such"),
        ("raise SystemExit('no Java')", "no analysis: no Java"),
    ],
)
def test_a_job_that_cant_be_run_is_refused_with_its_place(
    tmp_path: Path, script: str, told: str
) -> None:
    with pytest.raises(declarations.DeclarationRejected, match=told) as refused:
        declarations.check(packed(tmp_path, script))
    assert "insights v2 can't be run" in str(refused.value)
    assert "Nothing was changed" in str(refused.value)


def test_an_analysis_has_its_own_version_and_our_packages(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    beside = tmp_path / "packages"
    beside.mkdir()
    (beside / "beside.py").write_text("")
    monkeypatch.setenv("PYTHONPATH", f"{beside}:{Path(millrace_jobs.__file__).parents[1]}")
    script = "import beside, millrace_jobs; assert 'millrace_jobs.zip' in millrace_jobs.__file__"
    declarations.check(packed(tmp_path, script))


def test_an_analysis_that_hangs_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(declarations, "SECONDS", 0.5)
    with pytest.raises(declarations.DeclarationRejected, match="try again"):
        declarations.check(packed(tmp_path, "import time; time.sleep(3600)"))


@pytest.mark.parametrize(("before", "asked"), [(None, True), ("v1", True), ("v2", False)])
def test_what_runs_already_is_not_analysed_again(
    monkeypatch: pytest.MonkeyPatch, before: str | None, asked: bool
) -> None:
    done: list[str] = []
    deployed = SimpleNamespace(check=lambda: None)
    monkeypatch.setattr(commands, "deployment", lambda *_: deployed)
    monkeypatch.setattr(commands.compatibility, "check", lambda *_: None)
    monkeypatch.setattr(commands.declarations, "check", lambda _: done.append("analysed"))
    kept = Intent("running", before) if before else None
    registry: Any = SimpleNamespace(
        intent=lambda _: kept, intend=lambda *_: done.append("intended")
    )
    wanted: Any = SimpleNamespace(application="insights", version="v2", check=False)
    commands._start(registry, SimpleNamespace(deployments=None), wanted)  # type: ignore[arg-type]
    assert done == (["analysed", "intended"] if asked else [])
