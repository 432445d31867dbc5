"""The one Pulumi program: `millrace up` runs it inside the toolkit, `pulumi up` by __main__.py."""

import pulumi

from infra.certificates import ensure_certificates
from infra.conflicts import refuse_conflicts
from infra.exports import export
from infra.keys import ensure_ssh_key
from infra.local import LocalCluster, LocalClusterArgs
from millrace.common.errors import OperatorError
from millrace.common.paths import ARTIFACTS, stack_state
from millrace.inventory import build_inventory
from millrace.plan import Plan, load_plan
from millrace.setup.artifacts import read_manifest
from millrace.setup.image import image_tag


def program(environment: str) -> None:
    """Plans an environment and declares its hosts."""
    try:
        _declare(load_plan(environment))
    except OperatorError as error:
        # The engine shows a RunError as it is, anything else with a traceback.
        raise pulumi.RunError("\n".join(filter(None, (error.message, error.hint)))) from error


def _declare(plan: Plan) -> None:
    ensure_certificates(plan)
    match plan.provider:
        case "docker":
            declare(plan, image_tag(), read_manifest())
        case "aws":
            # Here, because pulumi-aws is large and no other provider needs it.
            from infra.aws import program as aws

            aws.declare(plan, read_manifest())
        case "static":
            # Somebody else makes the hosts; the stack only says what is to run on them.
            export(plan, build_inventory(plan, read_manifest()))


def declare(plan: Plan, image: str, manifest: dict[str, dict[str, str]]) -> None:
    """Declares a plan's hosts and hands on what the next steps need to know of them."""
    refuse_conflicts(plan, image)
    args = LocalClusterArgs(
        plan=plan,
        image=image,
        authorized_key=ensure_ssh_key(plan.environment),
        hosts_file=stack_state(plan.environment) / "hosts",
        artifacts=ARTIFACTS,
    )
    LocalCluster(plan.cluster, args)
    export(plan, build_inventory(plan, manifest))
