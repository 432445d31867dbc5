"""What the jobs' pure transforms cost, without Kafka and without a cluster."""
