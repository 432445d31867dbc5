"""Random records into all streams while the jobs run: whatever arrives, each has its place."""
