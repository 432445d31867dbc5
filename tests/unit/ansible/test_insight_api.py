"""What the API's role makes of the plan, read by the API itself."""

from pathlib import Path
from typing import Any

import pytest
from millrace_api.settings import Settings

from millrace.plan import DATA_ROOT, load_plan
from tests.playbooks import templated

OIDC = {
    "region": "eu-central-1",
    "balancer": "arn:aws:elasticloadbalancing:eu-central-1:123456789012:loadbalancer/app/edge/0123",
    "scopes": {
        "everybody": ["insights"],
        "groups": {"operators": ["operations"]},
        "groups_claim": "groups",
    },
}


def rendered(folder: Path, environment: str, **known: Any) -> Settings:
    text = templated("insight_api", "config.json", load_plan(environment), folder, **known)
    return Settings.model_validate_json(text)


@pytest.mark.parametrize("environment", ["local", "prod"])
def test_it_knows_where_keys_are_and_how_many_doors_there_are(
    tmp_path: Path, environment: str
) -> None:
    plan = load_plan(environment)
    settings = rendered(tmp_path, environment)
    assert settings.host == "edge-2"
    assert settings.doors == len(plan.services["insight_api"].hosts)
    assert settings.zookeeper == plan.endpoints.zookeeper
    assert settings.znodes.keys == plan.names.zookeeper.keys
    assert settings.data == Path(DATA_ROOT) / plan.services["insight_api"].unit
    assert settings.oidc is None


def test_a_balancer_that_authenticates_is_told(tmp_path: Path) -> None:
    settings = rendered(tmp_path, "prod", sign_in=OIDC)
    assert settings.oidc is not None
    assert settings.oidc.model_dump() == OIDC
