"""A job and its query, whatever its kind: what fences it, and how far it is."""
