"""The programs that D-Streams were measured with, on Structured Streaming.

Zaharia, Das, Li, Hunter, Shenker, Stoica: Discretized Streams: Fault-Tolerant Streaming Computation
at Scale, SOSP 2013.
"""
