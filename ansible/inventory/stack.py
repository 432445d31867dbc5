#!/usr/bin/env python3
"""Ansible's inventory: the output `inventory` of the Pulumi stack $MILLRACE_STACK (default: local).

The hosts are those that Pulumi has really made, not those a configuration file promises.
"""

import json
import sys
from pathlib import Path
from typing import Any

# Ansible starts this file by its path, from anywhere.
sys.path.insert(0, str(Path(__file__).resolve().parents[2]))

from infra.automation import outputs, stack
from millrace.common.errors import OperatorError
from millrace.common.paths import stack_name
from millrace.inventory import entered
from millrace.plan import load_plan


def inventory(name: str) -> dict[str, Any]:
    # Refuses a name that no environment has, before Pulumi makes a stack of it.
    plan = load_plan(name)
    made = outputs(stack(name))
    if "inventory" not in made:
        raise OperatorError(f"stack {name} has no hosts yet", f"make up STACK={name}")
    return entered(plan, made["inventory"])


def main() -> None:
    """Ansible asks with --list, and takes every host's variables from its `_meta`."""
    try:
        print(json.dumps(inventory(stack_name())))
    except OperatorError as error:
        sys.exit("\n".join(filter(None, (error.message, error.hint))))


if __name__ == "__main__":
    main()
