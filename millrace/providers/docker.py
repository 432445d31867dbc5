"""Hosts that are containers on this machine."""

from pathlib import Path

from millrace.plan import Plan
from millrace.providers import OPERATOR, HostControl, own_key_file, refuse

PREVIEWS = False


def check_machine(plan: Plan) -> str:
    from millrace.providers.docker_machine import observe, problems

    machine = observe(plan)
    refuse(problems(plan, machine))
    return (
        f"{machine.memory_available:,} MiB of memory and {machine.disk_available:,} MiB of disk "
        f"are enough for {plan.cluster}"
    )


def user(plan: Plan) -> str:
    return OPERATOR


def key_file(plan: Plan) -> Path:
    return own_key_file(plan)


def ssh_options(plan: Plan) -> tuple[str, ...]:
    return ()


def control(plan: Plan) -> HostControl:
    from millrace.providers.docker_hosts import DockerHosts

    return DockerHosts(plan)
