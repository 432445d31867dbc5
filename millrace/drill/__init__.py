"""Drills: a runbook's fault is injected under load, and every plane is measured and audited."""
