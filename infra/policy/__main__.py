"""What the engine starts for `pulumi preview --policy-pack infra/policy`."""

from infra.policy.pack import serve

serve()
