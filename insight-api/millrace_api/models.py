"""What the API answers. Field descriptions are the documentation at ``/docs``."""

from datetime import date, datetime
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from millrace_api.access import Reader
from millrace_api.generations import Revision
from millrace_api.history import Total
from millrace_api.progress import is_final
from millrace_api.ranges import Span, Window
from millrace_api.sketches import Estimate, merge
from millrace_api.store import DeadLetter, JobProgress, JobState, LateEvents, TrafficRow

State = Literal["up", "degraded", "down"]


class Answer(BaseModel):
    model_config = ConfigDict(populate_by_name=True, from_attributes=True)


class Range(Answer):
    """A half-open range of event time: from ≤ time < to."""

    start: datetime = Field(alias="from", examples=["2015-05-17T10:00:00Z"])
    end: datetime = Field(alias="to", examples=["2015-05-18T10:00:00Z"])


class UniqueVisitors(Answer):
    """A HyperLogLog estimate; the true count lies within the bounds with 95 % confidence."""

    estimate: int = Field(examples=[1753])
    lower: int = Field(examples=[1712])
    upper: int = Field(examples=[1795])

    @classmethod
    def of(cls, estimate: Estimate) -> "UniqueVisitors":
        return cls(estimate=estimate.count, lower=estimate.lower, upper=estimate.upper)


class Counts(Answer):
    """What was counted over a window, or over a range."""

    requests: int = Field(description="All requests.", examples=[9999])
    page_views: int = Field(
        description="Successful GETs of something that is not a static asset.", examples=[2480]
    )
    bytes: int = Field(description="Bytes of the responses' bodies.", examples=[2747282505])
    status: dict[str, int] = Field(
        description="Requests by class of HTTP status.",
        examples=[{"2xx": 9126, "3xx": 654, "4xx": 216, "5xx": 3, "other": 0}],
    )
    unique_visitors: UniqueVisitors
    final: bool = Field(
        description="True once no event can change it any more: the watermark has passed its end."
    )
    version: int = Field(
        description="Grows with every change: the job's fencing epoch << 32 | its batch.",
        examples=[12884901929],
    )


class TrafficWindow(Counts):
    """One window. Windows in which nothing happened are absent."""

    start: datetime
    end: datetime

    @classmethod
    def of(cls, row: TrafficRow, watermark: datetime | None) -> "TrafficWindow":
        return cls(
            start=row.start,
            end=row.end,
            requests=row.requests,
            page_views=row.page_views,
            bytes=row.bytes,
            status=row.status,
            unique_visitors=UniqueVisitors.of(merge([row.visitors])),
            final=is_final(row.end, watermark),
            version=row.version,
        )


class Traffic(Range):
    window: Window
    windows: list[TrafficWindow]
    revision: Revision


class TrafficTotal(Counts, Range):
    """A range as one figure."""

    revision: Revision

    @classmethod
    def of(cls, span: Span, total: Total) -> "TrafficTotal":
        measures = total.measures
        return cls(
            start=span.start,
            end=span.end,
            requests=measures.requests,
            page_views=measures.page_views,
            bytes=measures.bytes,
            status=measures.status,
            unique_visitors=UniqueVisitors.of(merge([measures.visitors])),
            final=total.final,
            version=measures.version,
            revision=total.revision,
        )


class Page(Answer):
    url: str = Field(examples=["/projects/xdotool/"])
    page_views: int = Field(examples=[223])


class TopPages(Range):
    distinct_pages: int = Field(
        description="Pages with a count of their own: all that were viewed, if `error` is 0."
    )
    error: int = Field(
        description="No page's views are off by more than this. 0: exact; more only where an hour"
        " had more pages than are tracked."
    )
    other_page_views: int = Field(description="Views that may be of pages without a count.")
    pages: list[Page] = Field(description="Most viewed first; equal ones by URL.")
    revision: Revision


class DeadLetterRecord(Answer):
    """An event that could not be read. Its original bytes are in the topic ``dead-letter``."""

    id: str = Field(description="Topic, partition and offset.", examples=["events-3-1042"])
    reason: str = Field(examples=["not valid JSON"])
    size: int = Field(description="Bytes of the original record.")
    preview: str = Field(description="Its beginning, as text.")
    received: datetime = Field(description="When Kafka received it.")

    @classmethod
    def of(cls, letter: DeadLetter) -> "DeadLetterRecord":
        return cls.model_validate(letter)


class DeadLetters(Range):
    count: int = Field(description="All in the range, not only those listed.")
    reasons: dict[str, int] = Field(description="The count of each reason.")
    dead_letters: list[DeadLetterRecord] = Field(
        description="Samples, latest first: a few of each batch, minute and reason are kept."
    )
    next: str | None = Field(
        description="Asked again with it as `cursor`, the same question gets the samples before."
    )
    complete: bool = Field(
        description="False where a day has more samples than are looked at: the topic"
        " `dead-letter` has every record."
    )


class LateDay(Answer):
    day: date
    window: str = Field(description="An event may be late for its minute but not for its hour.")
    events: int

    @classmethod
    def of(cls, late: LateEvents) -> "LateDay":
        return cls.model_validate(late)


class Late(Range):
    days: list[LateDay]


class Doing(Answer):
    """What a job does now, as the driver that leads tells it; null while none does."""

    state: str | None = Field(examples=["running"], description="As `millrace jobs` shows it.")
    trouble: str | None = Field(
        description="Why it doesn't run as it should; null without the scope `operations`."
    )
    failed_since: datetime | None = Field(description="Null unless it has failed.")
    runbook: str | None = Field(
        examples=["/runbooks/job-failed"], description="The page that says what to do then."
    )

    @classmethod
    def facts(cls, told: JobState | None, reader: Reader) -> dict[str, Any]:
        trouble = told.trouble if told and "operations" in reader.scopes else None
        return {
            "state": told and told.state,
            "trouble": trouble or None,
            "failed_since": told and told.failed_since,
            "runbook": f"/runbooks/{told.runbook}" if told and told.runbook else None,
        }


class Behind(Answer):
    """Records wait for a job for longer than its settings allow."""

    since: datetime
    records: int | None = Field(description="That wait now; null while nobody knows.")
    level_in_seconds: float | None = Field(
        description="Until none waits, at the rate of the last minutes; null while they grow."
    )


class Job(Doing):
    """The last batch that a job committed, and what it does now."""

    job: str = Field(examples=["traffic"])
    version: str = Field(description="Version of the job's code.")
    epoch: int = Field(description="Fencing epoch: grows with every driver that takes over.")
    batch: int
    watermark: datetime | None = Field(description="Events older than it are late.")
    max_event_time: datetime | None
    updated: datetime
    age_seconds: float = Field(description="Seconds since the batch was committed.")
    input_rows_per_second: float
    behind: Behind | None = Field(description="Null for a job that isn't behind, or isn't known.")

    @classmethod
    def of(
        cls,
        progress: JobProgress,
        told: JobState | None,
        reader: Reader,
        now: datetime,
        behind: Behind | None = None,
    ) -> "Job":
        age = round(max(0.0, (now - progress.updated).total_seconds()), 1)
        return cls(**vars(progress), **cls.facts(told, reader), age_seconds=age, behind=behind)


class Progress(Answer):
    jobs: list[Job]


class Extent(Answer):
    """Where there is data: from the first window to the end of the last, by size of window."""

    minutes: Range | None = Field(alias="1m")
    hours: Range | None = Field(alias="1h")


class Plane(Answer):
    name: Literal["ingest", "process", "store", "cache"]
    system: str = Field(examples=["Cassandra"])
    state: State
    detail: str = Field(examples=["quorum, 3 of 3 nodes up"])


class Status(Answer):
    cluster: str
    planes: list[Plane]


class Problem(Answer):
    """RFC 9457 problem details."""

    type: str = "about:blank"
    title: str = Field(examples=["Bad parameter"])
    status: int = Field(examples=[422])
    detail: str = Field(examples=["'2015-05-17' has no time zone; end it with Z for UTC"])
    parameter: str | None = Field(default=None, examples=["from"])
    scope: str | None = Field(
        default=None, examples=["sessions"], description="What the key that was sent lacks."
    )
    instance: str | None = Field(
        default=None, description="Of an unexpected error: its name in the API's log."
    )
