"""One stateless query in modes that differ in latency: micro-batch, real-time mode, Flink SQL."""
