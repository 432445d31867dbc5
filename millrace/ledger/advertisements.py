"""Advertisements that are shown and clicked, with what has to come of them. Pure and seeded."""

import heapq
import json
import random
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from datetime import UTC, datetime

IMPRESSIONS, CLICKS = "impressions", "clicks"  # streams of configs/streams
CAMPAIGNS = ("spring", "summer", "autumn", "winter")
CLICKED = 0.05  # share of the impressions
STRAY = 0.1  # share of the clicks whose impression nobody has seen
SECONDS_TO_CLICK = 15.0  # on average


@dataclass(frozen=True)
class Record:
    """An impression or a click, to be sent ``ms`` after the start; ``number`` settles the order."""

    ms: int
    number: int
    stream: str
    campaign: str
    impression: str
    shown_ms: int | None

    def message(self, run: str, started_ms: int) -> tuple[bytes, bytes]:
        """Returns key and value for Kafka."""
        moment = datetime.fromtimestamp((started_ms + self.ms) / 1000, UTC)
        content = {
            "impression_id": f"{run}-{self.impression}",
            "campaign": self.campaign,
            "event_time": moment.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
        }
        if self.stream == CLICKS:
            content["click_id"] = f"{run}-{self.number}"
        value = json.dumps(content, separators=(",", ":"))
        return content["impression_id"].encode(), value.encode()


def advertisements(seed: int, rate: float, seconds: float) -> Iterator[Record]:
    """``rate`` impressions a second and their clicks, in the order of their times."""
    draw = random.Random(seed)
    waiting: list[tuple[int, int, Record]] = []
    numbers = iter(range(2**63))
    length_ms = int(1000 * seconds)
    for shown in range(int(rate * seconds)):
        ms = int(1000 * shown / rate)
        while waiting and waiting[0][0] <= ms:
            yield heapq.heappop(waiting)[2]
        campaign = draw.choice(CAMPAIGNS)
        yield Record(ms, next(numbers), IMPRESSIONS, campaign, str(shown), ms)
        if draw.random() < CLICKED:
            stray = draw.random() < STRAY
            at = ms + int(1000 * draw.expovariate(1 / SECONDS_TO_CLICK))
            impression = f"{shown}-stray" if stray else str(shown)
            click = Record(at, next(numbers), CLICKS, campaign, impression, None if stray else ms)
            if at < length_ms:
                heapq.heappush(waiting, (at, click.number, click))
    while waiting:
        yield heapq.heappop(waiting)[2]


@dataclass
class Figures:
    """Of a campaign, called as the job `attribution` calls them."""

    impressions: int = 0
    clicks: int = 0
    matched: int = 0
    unmatched: int = 0
    milliseconds_to_click: int = 0


class Truth:
    """What of the records that were acknowledged has to be found in the job's rows."""

    def __init__(self) -> None:
        self.campaigns = {campaign: Figures() for campaign in CAMPAIGNS}

    def count(self, record: Record) -> None:
        figures = self.campaigns[record.campaign]
        if record.stream == IMPRESSIONS:
            figures.impressions += 1
            return
        figures.clicks += 1
        if record.shown_ms is None:
            figures.unmatched += 1
        else:
            figures.matched += 1
            figures.milliseconds_to_click += record.ms - record.shown_ms

    def as_json(self) -> dict[str, dict[str, int]]:
        return {campaign: asdict(figures) for campaign, figures in self.campaigns.items()}
