"""Synthetic web traffic as an access log: the same path into the pipeline as a real one."""
