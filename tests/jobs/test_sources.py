"""Kafka as a source: how its clients leave a broker that doesn't answer."""

from millrace_jobs.sources import asking_anew, turning_away

from millrace.config import load_component

RETRY_BACKOFF_MS = 100  # Kafka's default: when new metadata is asked for at the earliest


def test_new_metadata_is_asked_for_before_the_way_back_to_a_frozen_broker() -> None:
    answer = load_component("spark").settings["common"]["kafka_read_answer_ms"].value
    options = turning_away(answer)
    assert options["kafka.reconnect.backoff.ms"] > RETRY_BACKOFF_MS
    assert options["kafka.metadata.max.age.ms"] < options["kafka.request.timeout.ms"]


def test_offsets_are_asked_for_anew_once_a_dead_leader_has_a_successor() -> None:
    controllers = load_component("kafka_controller").settings["controller.properties"]
    give_up = load_component("spark").settings["common"]["kafka_read_give_up_ms"].value
    options = asking_anew(give_up)
    assert options["kafka.default.api.timeout.ms"] > controllers["broker.session.timeout.ms"].value
    assert options["fetchOffset.numRetries"] * give_up == 180_000
