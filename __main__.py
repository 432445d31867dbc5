"""What a plain `pulumi up` runs: the program of infra/."""

import pulumi

from infra.program import program

program(pulumi.get_stack())
