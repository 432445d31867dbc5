"""What a replay has to know of the cluster: its brokers, its limits, and how far its jobs are."""

from dataclasses import dataclass
from datetime import datetime

import httpx

from millrace.common.errors import OperatorError
from millrace.config import TopicNames
from millrace.plan import Plan
from millrace.replay.events import Limits

STREAM = "events"  # what lines of a web log are


@dataclass(frozen=True)
class Pipeline:
    """Endpoints are addresses: the operator's machine doesn't resolve the cluster's host names."""

    brokers: str
    topics: TopicNames
    apis: list[str]
    watermark: int  # seconds that an event may be late
    limits: Limits

    @classmethod
    def of(cls, plan: Plan) -> "Pipeline":
        stream = plan.streams[STREAM]
        return cls(
            brokers=",".join(plan.addresses("kafka_broker", "client")),
            topics=plan.names.kafka.topics,
            apis=[f"http://{address}" for address in plan.addresses("insight_api", "http")],
            watermark=plan.shared["spark"]["settings"]["traffic"]["watermark_seconds"],
            limits=Limits(
                earliest=stream.earliest_seconds,
                ahead=stream.ahead_seconds,
                line_bytes=plan.limits["line_bytes"],
            ),
        )

    def traffic_watermark(self) -> datetime | None:
        """Events before it are dropped as late; None when nothing was processed yet."""
        reasons = []
        for api in self.apis:
            try:
                answer = httpx.get(f"{api}/v1/progress", timeout=5).raise_for_status()
            except httpx.HTTPError as error:
                reasons.append(f"{api}: {error}")
                continue
            marks = [job["watermark"] for job in answer.json()["jobs"] if job["job"] == "traffic"]
            return datetime.fromisoformat(marks[0]) if marks and marks[0] else None
        raise OperatorError(
            "no insight API says how far the jobs are: " + "; ".join(reasons),
            "what is older than their watermark would be dropped, so nothing was sent; "
            "`millrace status` shows what is down",
        )
