"""The edge hosts' doors, as the toolkit goes in: by TLS that it verifies, with a key of its own.

By the standard library alone, for the same reason as `services`.
"""

import ssl
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path

from millrace.cluster import operator_key, tunnel
from millrace.common.errors import OperatorError
from millrace.common.paths import stack_secrets
from millrace.plan import Plan

SERVICE = "edge_proxy"
INSIGHTS, INTAKE = "insights", "intake"
OWN_INSIGHTS, OWN_INTAKE = "own_insights", "own_intake"  # of that host alone


@dataclass(frozen=True)
class Credentials:
    """``authority``: the file of the certificate that all others of the environment are signed by;
    None for those that everybody trusts. ``key``: the secret of the toolkit's own key."""

    authority: Path | None
    key: str

    @cached_property
    def context(self) -> ssl.SSLContext:
        return ssl.create_default_context(cafile=self.authority)

    @property
    def headers(self) -> dict[str, str]:
        return {"Authorization": f"Bearer {self.key}"}


def credentials(plan: Plan) -> Credentials:
    """Reads them on this machine. Raises OperatorError when they aren't there."""
    authority = stack_secrets(plan.environment) / "ca.crt"
    if not authority.is_file():
        raise OperatorError(f"{authority}: no such file", "`millrace up` makes it")
    return Credentials(authority, operator_key.secret_of(plan))


def addresses(plan: Plan, door: str) -> list[str]:
    """Returns ``address:port`` of a door at each host."""
    return tunnel.addresses(plan, SERVICE, door)


def urls(plan: Plan, door: str) -> list[str]:
    return [f"https://{address}" for address in addresses(plan, door)]
