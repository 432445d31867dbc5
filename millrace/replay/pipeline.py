"""What a replay has to know of the cluster: its brokers, its limits, and how far its jobs are."""

from dataclasses import dataclass
from datetime import datetime
from typing import Any

from millrace.cluster import kafka
from millrace.cluster.insight_api import InsightApi
from millrace.common.errors import OperatorError
from millrace.config import TopicNames
from millrace.plan import Plan
from millrace.replay.events import Limits

STREAM = "events"  # what lines of a web log are


@dataclass(frozen=True)
class Pipeline:
    """``client`` are settings of Kafka clients: a replay outwaits whatever may fail over."""

    client: dict[str, Any]
    api: InsightApi
    topics: TopicNames
    watermark: int  # seconds that an event may be late
    limits: Limits

    @classmethod
    def of(cls, plan: Plan) -> "Pipeline":
        stream = plan.streams[STREAM]
        return cls(
            client=kafka.default_client(plan),
            api=InsightApi(plan),
            topics=plan.names.kafka.topics,
            watermark=plan.spark.settings.traffic.watermark_seconds,
            limits=Limits(
                earliest=stream.earliest_seconds,
                ahead=stream.ahead_seconds,
                line_bytes=plan.limits["line_bytes"],
            ),
        )

    def traffic_watermark(self) -> datetime | None:
        """Events before it are dropped as late; None when nothing was processed yet."""
        try:
            return self.api.progress(kafka.JOB).get("watermark")
        except OperatorError as silent:
            raise OperatorError(
                f"no insight API says how far the jobs are: {silent.message}",
                "what is older than their watermark would be dropped, so nothing was sent; "
                "`millrace status` shows what is down",
            ) from None
