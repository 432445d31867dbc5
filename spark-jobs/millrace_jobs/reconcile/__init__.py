"""The past of a job, counted beside itself: docs/adr/0039-the-past-is-counted-beside-itself.md."""
