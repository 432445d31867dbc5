"""Drivers as they register themselves: read by application, and by their keys' types."""

from typing import Any

import pytest
from kazoo.exceptions import NoNodeError

from millrace.cluster import zookeeper
from millrace.common.errors import OperatorError
from millrace.plan import load_plan
from millrace_shared.driver_record import DriverRecord

PLAN = load_plan("local")
FOLDER = f"{PLAN.names.zookeeper.applications}/insights/drivers"
LEADS = DriverRecord("application_1_1", "worker-1", "leading", since=1.0, jvm=7)


class Nodes:
    """ZooKeeper with these drivers; None is one that goes between being listed and being read."""

    def __init__(self, drivers: dict[str, str | None]) -> None:
        self._drivers = drivers

    def get_children(self, folder: str) -> list[str]:
        if folder != FOLDER or not self._drivers:
            raise NoNodeError
        return list(self._drivers)

    def get(self, node: str) -> tuple[bytes, None]:
        content = self._drivers[node.removeprefix(f"{FOLDER}/")]
        if content is None:
            raise NoNodeError
        return content.encode(), None


def drivers(found: dict[str, str | None]) -> zookeeper.Drivers:
    client: Any = Nodes(found)
    return zookeeper._drivers(client, PLAN)


def test_an_application_has_the_drivers_that_are_there() -> None:
    assert drivers({"0": None, "1": LEADS.to_json()}) == {"insights": [LEADS]}


def test_one_that_was_never_started_has_none() -> None:
    assert drivers({}) == {"insights": []}


@pytest.mark.parametrize(
    ("content", "complaint"),
    [("{", "Expecting"), ('{"run": "a", "host": "b", "state": "c"}', "since: is missing")],
)
def test_what_is_no_record_is_named_with_its_node(content: str, complaint: str) -> None:
    with pytest.raises(OperatorError, match=f"node {FOLDER}/1 is no driver's record") as refused:
        drivers({"1": content})
    assert complaint in refused.value.message
