"""What a stack hands on: Ansible's inventory script and the toolkit read these outputs."""

from typing import Any

import pulumi

from infra import shared
from millrace.common.paths import stack_state
from millrace.plan import Plan


def export(
    plan: Plan, inventory: pulumi.Input[Any], public: pulumi.Input[str] | None = None
) -> None:
    """``public`` is where everybody finds the API, if there is such a place."""
    endpoints: dict[str, Any] = {
        name: [str(endpoint) for endpoint in found] for name, found in plan.endpoints if found
    }
    pulumi.export("inventory", inventory)
    pulumi.export("endpoints", endpoints | ({"public": public} if public else {}))
    pulumi.export("plan_digest", plan.digest)
    if plan.aws and plan.aws.state:
        files = shared.read(stack_state(plan.environment))
        pulumi.export(shared.OUTPUT, pulumi.Output.secret(files))
