"""How many records of `events` the traffic job still has before it."""

from confluent_kafka import ConsumerGroupTopicPartitions, IsolationLevel, TopicPartition
from confluent_kafka.admin import AdminClient, OffsetSpec

from millrace.plan import Plan

TOPIC = "events"
# The job commits its position with its results, in one transaction; see its results sink.
GROUP = "millrace-traffic"
TIMEOUT = 10  # s


def connect(plan: Plan) -> AdminClient:
    """A client of the plan's brokers that says only what is wrong."""
    brokers = ",".join(plan.addresses("kafka_broker", "client"))
    return AdminClient({"bootstrap.servers": brokers, "log_level": 4})


def traffic_lag(admin: AdminClient, plan: Plan) -> int:
    """Committed records that no committed batch has read; raises KafkaException without brokers."""
    partitions = [TopicPartition(TOPIC, p) for p in range(plan.topics[TOPIC].partitions)]
    ends = admin.list_offsets(
        {partition: OffsetSpec.latest() for partition in partitions},
        isolation_level=IsolationLevel.READ_COMMITTED,
        request_timeout=TIMEOUT,
    )
    asked = admin.list_consumer_group_offsets([ConsumerGroupTopicPartitions(GROUP)])
    read = {p.partition: p.offset for p in asked[GROUP].result(TIMEOUT).topic_partitions}
    return sum(
        future.result(TIMEOUT).offset - max(0, read.get(partition.partition, 0))
        for partition, future in ends.items()
    )
