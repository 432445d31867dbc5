"""Sends a web access log into the pipeline: resumably, each line exactly once.

A log is cut into transactions. Each one carries its events *and* the position after them, so the
position in Kafka is always that of the events in Kafka, wherever the replay was killed.
"""
