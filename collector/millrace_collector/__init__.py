"""The producers' door: events in over HTTP, acknowledged once Kafka has them."""
