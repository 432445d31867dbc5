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

from infra.policy.rules import RESOURCE_RULES, STACK_RULES, Finding, Resource
from infra.policy.settings import Settings, load_settings

NAME = "millrace"

ResourceRule = Callable[[Resource, Settings], Iterator[str]]
StackRule = Callable[[Sequence[Resource], Settings], Iterator[Finding]]


def serve() -> None:
    """Answers the engine until it has no more questions."""
    PolicyPack(NAME, policies(load_settings()), EnforcementLevel.MANDATORY)


def policies(settings: Settings) -> list[Policy]:
    return [
        *(_resource_policy(rule, settings) for rule in RESOURCE_RULES),
        *(_stack_policy(rule, settings) for rule in STACK_RULES),
    ]


def policy_name(rule: ResourceRule | StackRule) -> str:
    return rule.__name__.replace("_", "-")


def _resource_policy(rule: ResourceRule, settings: Settings) -> Policy:
    def validate(args: ResourceValidationArgs, report: ReportViolation) -> None:
        for message in rule(_seen(args), settings):
            report(message, None)

    return ResourceValidationPolicy(
        policy_name(rule), _description(rule), validate, severity=Severity.HIGH
    )


def _stack_policy(rule: StackRule, settings: Settings) -> Policy:
    def validate(args: StackValidationArgs, report: ReportViolation) -> None:
        for resource, message in rule([_seen_in_stack(each) for each in args.resources], settings):
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
