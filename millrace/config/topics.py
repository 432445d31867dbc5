"""Models of ``configs/components/events.yaml``: Kafka's topics, and the longest line."""

from collections.abc import Iterator
from pathlib import Path

from pydantic import PositiveInt

from millrace.common.paths import CONFIGS
from millrace.config.load import read_yaml, validate
from millrace.config.model import Model, Profile, Setting
from millrace.config.names import KafkaNames


class Topic(Model):
    """A Kafka topic: partitions per profile, and its tuned configuration."""

    summary: str
    partitions: dict[Profile, PositiveInt]
    config: dict[str, Setting] = {}


class Events(Model):
    """``configs/components/events.yaml``: topics by their part; the longest line that is sent."""

    summary: str
    topics: dict[str, Topic]
    limits: dict[str, Setting] = {}

    def problems(self, kafka: KafkaNames, profile: Profile) -> Iterator[str]:
        """Why there are no such topics: a part that has no name, or no partitions."""
        if differ := self.topics.keys() ^ kafka.parts.keys():
            yield (
                "topics: each part of kafka.topics and kafka.stream_topics in names.yaml, and"
                f" nothing else: {', '.join(sorted(differ))}"
            )
        for part, topic in self.topics.items():
            if profile not in topic.partitions:
                yield f"topics.{part}.partitions: none for profile {profile}"


def load_events(configs: Path = CONFIGS) -> Events:
    path = configs / "components" / "events.yaml"
    return validate(Events, read_yaml(path), path)
