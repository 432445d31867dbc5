"""What the traffic job has before it, asked of brokers that may be away."""

from concurrent.futures import Future

import pytest
from confluent_kafka import KafkaException

from millrace import lag
from millrace.plan import load_plan


class Silent:
    """Brokers that take a question and never answer."""

    def list_offsets(self, asked, **_):
        return {partition: Future() for partition in asked}

    def list_consumer_group_offsets(self, asked):
        return {group.group_id: Future() for group in asked}


def test_no_answer_is_an_error_of_kafka(monkeypatch):
    monkeypatch.setattr(lag, "TIMEOUT", 0.01)
    with pytest.raises(KafkaException, match="no answer"):
        lag.traffic_lag(Silent(), load_plan("local"))
    with pytest.raises(KafkaException, match="no answer"):
        lag.positions(Silent())
