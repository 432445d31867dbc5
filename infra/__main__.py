"""What a plain `pulumi up` runs. `eval "$(millrace env)"` sets its environment."""

import pulumi

from infra.program import program

program(pulumi.get_stack())
