"""Engines side by side: the same broker, the same cores, the same events, checked results."""
