"""The rules as Pulumi's policy engine wants them."""

from collections.abc import Callable, Iterator, Sequence

from pulumi_policy import (
    EnforcementLevel,
    Policy,
    PolicyPack,
    PolicyResource,
    ReportViolation,
    ResourceValidationArgs,
    ResourceValidationPolicy,
    Severity,
    StackValidationArgs,
    StackValidationPolicy,
)

from infra.policy.demands import Demands, load_demands
from infra.policy.rules import RESOURCE_RULES, STACK_RULES, Finding, Resource

NAME = "millrace"

ResourceRule = Callable[[Resource, Demands], Iterator[str]]
StackRule = Callable[[Sequence[Resource], Demands], Iterator[Finding]]


def serve() -> None:
    """Answers the engine until it has no more questions."""
    PolicyPack(NAME, policies(load_demands()), EnforcementLevel.MANDATORY)


def policies(demands: Demands) -> list[Policy]:
    return [
        *(_resource_policy(rule, demands) for rule in RESOURCE_RULES),
        *(_stack_policy(rule, demands) for rule in STACK_RULES),
    ]


def policy_name(rule: ResourceRule | StackRule) -> str:
    return rule.__name__.replace("_", "-")


def _resource_policy(rule: ResourceRule, demands: Demands) -> Policy:
    def validate(args: ResourceValidationArgs, report: ReportViolation) -> None:
        for message in rule(_seen(args), demands):
            report(message, None)

    return ResourceValidationPolicy(
        policy_name(rule), _description(rule), validate, severity=Severity.HIGH
    )


def _stack_policy(rule: StackRule, demands: Demands) -> Policy:
    def validate(args: StackValidationArgs, report: ReportViolation) -> None:
        for resource, message in rule([_seen_in_stack(each) for each in args.resources], demands):
            report(message, resource.urn)

    return StackValidationPolicy(
        policy_name(rule), _description(rule), validate, severity=Severity.HIGH
    )


def _description(rule: ResourceRule | StackRule) -> str:
    return (rule.__doc__ or "").splitlines()[0]


def _seen(args: ResourceValidationArgs) -> Resource:
    return Resource(args.resource_type, args.urn, args.props, args.opts.protect)


def _seen_in_stack(resource: PolicyResource) -> Resource:
    depends = {
        key: [each.urn for each in sources]
        for key, sources in resource.property_dependencies.items()
    }
    return Resource(
        resource.resource_type, resource.urn, resource.props, resource.opts.protect, depends
    )
