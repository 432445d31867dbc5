"""The operator's toolkit: configuration models, the planner, the inventory and the CLI."""
