"""The Pulumi program: what makes a plan's hosts."""
