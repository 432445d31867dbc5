"""A driver process, from its start to its end."""
