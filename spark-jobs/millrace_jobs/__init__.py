"""Millrace's streaming jobs: pure transforms, thin jobs, idempotent sinks, one runner.

A deployable of its own: everything it knows about the cluster stands in the configuration file that
a deployment renders (see `millrace_jobs.config`).
"""
