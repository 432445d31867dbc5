"""Names and tags: whatever bears them belongs to one stack, and says to which host.

The tags are called as the labels of `local`'s containers are.
"""

from millrace.plan import Host, Plan


def named(plan: Plan, name: str) -> str:
    return f"{plan.cluster}-{name}"


def tags(plan: Plan, name: str, host: Host | None = None) -> dict[str, str]:
    """``name`` is without the cluster, which precedes it unless it is there already."""
    own = name if name.startswith(plan.cluster) else named(plan, name)
    common = {
        "Name": own,
        "millrace.cluster": plan.cluster,
        "millrace.stack": plan.environment,
    }
    if host is None:
        return common
    return common | {
        "millrace.host": host.name,
        "millrace.group": host.group,
        "millrace.zone": host.zone,
    }
