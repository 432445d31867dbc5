"""What a stack hands on: Ansible's inventory script and the toolkit read these outputs."""

from typing import Any

import pulumi

from millrace.plan import Plan


def export(
    plan: Plan, inventory: pulumi.Input[Any], endpoints: dict[str, pulumi.Input[Any]]
) -> None:
    pulumi.export("inventory", inventory)
    pulumi.export("endpoints", endpoints)
    pulumi.export("plan_digest", plan.digest)
