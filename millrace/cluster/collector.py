"""The collector, to which events are sent over HTTP.

`Sender` is what a producer should do: send again what isn't written, until it is.
`CollectorProducer` stands for Kafka's own in `millrace load`, and sends each event once. Where none
can have taken it, because no host answered the connection or each said that it didn't, it goes to
the next host. Where nobody knows, it is in doubt: a ledger must know.
"""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from dataclasses import dataclass
from typing import Any

import httpx

from millrace.cluster import doors
from millrace.cluster.doors import Credentials
from millrace.cluster.kafka import KafkaError
from millrace.common.errors import OperatorError, UnreachableError
from millrace.keys import operator_rate
from millrace.plan import Plan

BATCH = 200  # events, some 70 kB
LINGER_SECONDS = 0.025  # as the load's own producer
REQUESTS = 32  # at once
CONNECT_SECONDS = 1.0
ANSWER_SECONDS = 25.0  # longer than the collector itself waits for Kafka
PAUSE_SECONDS = 0.1  # once each host was tried
AWAY_SECONDS = 2.0  # a host that didn't answer a connection is the last one to be tried
QUEUE_EVENTS = 1_000_000
PATIENCE_SECONDS = 120.0  # of a Sender, for one request
EXPLAINED = "docs/send-events.md says what each answer means"
REPRESENTATION = {"Prefer": "return=representation"}
UNKNOWN = KafkaError(KafkaError._PURGE_INFLIGHT)
REFUSED = KafkaError(KafkaError.INVALID_RECORD)
PROBLEM = "application/problem+json"
# What the collector doesn't take now, and may take a little later.
LATER = {
    httpx.codes.REQUEST_TIMEOUT,
    httpx.codes.TOO_MANY_REQUESTS,
    httpx.codes.SERVICE_UNAVAILABLE,
}
# By a proxy whose collector gave no answer: nobody knows what became of the request. A 503 that is
# a problem is the collector's own word, or the proxy's that no collector has seen it.
UNANSWERED = {httpx.codes.BAD_GATEWAY, httpx.codes.GATEWAY_TIMEOUT}
BETWEEN = UNANSWERED | {httpx.codes.SERVICE_UNAVAILABLE}

Report = Callable[[KafkaError | None, Any], None]


@dataclass(frozen=True)
class Place:
    """As a Message of Kafka's client tells it."""

    of: tuple[int, int]

    def partition(self) -> int:
        return self.of[0]

    def offset(self) -> int:
        return self.of[1]


@dataclass(frozen=True)
class Told:
    """What an answer says of a request's records, by their indices in it."""

    places: Sequence[Place | None]
    refused: Mapping[int, str]
    unknown: Sequence[int]
    unwritten: Sequence[int]

    @classmethod
    def of(cls, answer: httpx.Response) -> "Told | None":
        """None where it says nothing of single records: the collector has written none then."""
        try:
            content = answer.json()
        except ValueError:
            return None
        if "written" not in content:
            return None
        return cls(
            [place and Place((place[0], place[1])) for place in content.get("places", [])],
            {one["record"] - 1: one["why"] for one in content.get("refused", [])},
            [number - 1 for number in content.get("unknown", [])],
            [number - 1 for number in content.get("unwritten", [])],
        )


class CollectorProducer:
    """What `Load` uses of confluent_kafka's Producer; reports are brought by `poll`."""

    def __init__(self, urls: Sequence[str], stream: str, credentials: Credentials) -> None:
        self._urls = [f"{url}/v1/{stream}" for url in urls]
        self._client = _client(credentials)
        self._client.headers.update(REPRESENTATION)
        self._threads = ThreadPoolExecutor(REQUESTS)
        self._gathered: list[tuple[bytes, Report]] = []
        self._since = 0.0
        self._sent: dict[Future[list[Place | KafkaError]], list[Report]] = {}
        self._turn = 0
        self._waiting = 0
        self._away_until = dict.fromkeys(self._urls, 0.0)  # of the monotonic clock

    def produce(self, topic: str, value: bytes, key: bytes, on_delivery: Report) -> None:
        """Topic and key are the collector's to choose. Raises BufferError when too much waits."""
        if self._waiting >= QUEUE_EVENTS:
            raise BufferError
        if not self._gathered:
            self._since = time.monotonic()
        self._gathered.append((value, on_delivery))
        self._waiting += 1
        if len(self._gathered) >= BATCH:
            self._send()

    def poll(self, seconds: float) -> None:
        """Raises OperatorError when the collector won't take the events at all."""
        if self._gathered and time.monotonic() - self._since >= LINGER_SECONDS:
            self._send()
        if not self._sent:
            time.sleep(min(seconds, LINGER_SECONDS))
            return
        for request in wait(self._sent, min(seconds, LINGER_SECONDS), "FIRST_COMPLETED").done:
            reports, fates = self._sent.pop(request), request.result()
            self._waiting -= len(reports)
            for report, fate in zip(reports, fates, strict=True):
                if isinstance(fate, Place):
                    report(None, fate)
                else:
                    report(fate, None)

    def purge(self) -> None:
        """Does nothing: this producer never ends for good."""

    def __len__(self) -> int:
        return self._waiting

    def _send(self) -> None:
        records, self._gathered = self._gathered, []
        self._turn += 1
        request = self._threads.submit(self._post, [value for value, _ in records], self._turn)
        self._sent[request] = [report for _, report in records]

    def _post(self, values: Sequence[bytes], turn: int) -> list[Place | KafkaError]:
        """Returns where each is, or why not. Raises OperatorError."""
        fates: list[Place | KafkaError] = [UNKNOWN] * len(values)
        left = [*range(len(values))]  # that nobody can have taken
        while True:
            for url in self._in_turn(turn):
                try:
                    answer = self._client.post(url, content=_array(values[n] for n in left))
                except (httpx.ConnectError, httpx.ConnectTimeout):
                    self._away_until[url] = time.monotonic() + AWAY_SECONDS
                    continue
                except httpx.TransportError:
                    return fates
                told = Told.of(answer)
                if told and answer.status_code != httpx.codes.INTERNAL_SERVER_ERROR:
                    for index, number in enumerate(left):
                        fates[number] = told.places[index] or UNKNOWN
                    for index in told.refused:
                        fates[left[index]] = REFUSED
                    left = [left[index] for index in told.unwritten]
                    if not left:
                        return fates
                elif answer.status_code in UNANSWERED or (
                    answer.status_code in BETWEEN and not _is_problem(answer)
                ):
                    return fates
                elif answer.status_code not in LATER:
                    raise OperatorError(f"{url}: {answer.status_code}: {answer.text}", EXPLAINED)
            time.sleep(PAUSE_SECONDS)

    def _in_turn(self, turn: int) -> list[str]:
        first, now = turn % len(self._urls), time.monotonic()
        turns = self._urls[first:] + self._urls[:first]
        return sorted(turns, key=lambda url: self._away_until[url] > now)


class Sender:
    """Sends records again until they are written, by whichever host.

    A request has at most so many records and bytes, as long as no record alone has more.
    """

    def __init__(
        self,
        urls: Sequence[str],
        stream: str,
        credentials: Credentials,
        request_bytes: int,
        request_records: int,
    ) -> None:
        self._request_bytes = request_bytes
        self._request_records = request_records
        self._urls = [f"{url}/v1/{stream}" for url in urls]
        self._client = _client(credentials)

    @classmethod
    def of(cls, plan: Plan, stream: str) -> "Sender":
        """Makes a sender with the operator's key, which may send so much at once through one host.
        Raises OperatorError when there is none."""
        collector = plan.services["collector"]
        settings = collector.settings["config.json"]
        records = int(operator_rate(plan) * settings["burst_seconds"]) // len(collector.hosts)
        size = min(settings["request_bytes"], records * settings["event_bytes"])
        return cls(doors.urls(plan, doors.INTAKE), stream, doors.credentials(plan), size, records)

    def send(self, values: Sequence[bytes]) -> None:
        """Raises OperatorError when some aren't taken, or not in time."""
        part: list[bytes] = []
        size = len(_array([]))
        for value in values:
            is_full = len(part) >= self._request_records or size + len(value) > self._request_bytes
            if part and is_full:
                self._post(part)
                part, size = [], len(_array([]))
            part.append(value)
            size += len(value) + 1  # a comma
        self._post(part)

    def _post(self, values: Sequence[bytes]) -> None:
        deadline = time.monotonic() + PATIENCE_SECONDS
        refused: list[str] = []
        said = ""
        while time.monotonic() < deadline:
            pause = 1.0
            for url in self._urls:
                try:
                    answer = self._client.post(url, content=_array(values))
                except httpx.TransportError as error:
                    said = f"{url}: {type(error).__name__}: {error}"
                    continue
                said = f"{url}: {answer.status_code}: {answer.text}"
                told = Told.of(answer)
                if told and answer.status_code != httpx.codes.INTERNAL_SERVER_ERROR:
                    refused += told.refused.values()
                    values = [values[n] for n in sorted({*told.unknown, *told.unwritten})]
                elif answer.status_code not in LATER | BETWEEN:
                    raise OperatorError(said, EXPLAINED)
                if not values and not refused:
                    return
                if not values:
                    raise OperatorError(f"{url}: {len(refused)} refused: {refused[0]}", EXPLAINED)
                pause = float(answer.headers.get("retry-after", pause))
            time.sleep(pause)
        raise UnreachableError(said, "`millrace status` shows what is down")


def connect(plan: Plan, stream: str) -> CollectorProducer:
    """Connects with the operator's key. Raises OperatorError when there is none."""
    return CollectorProducer(doors.urls(plan, doors.INTAKE), stream, doors.credentials(plan))


def _client(credentials: Credentials) -> httpx.Client:
    return httpx.Client(
        timeout=httpx.Timeout(ANSWER_SECONDS, connect=CONNECT_SECONDS),
        limits=httpx.Limits(max_connections=REQUESTS),
        verify=credentials.context,
        headers=credentials.headers | {"Content-Type": "application/json"},
    )


def _is_problem(answer: httpx.Response) -> bool:
    return answer.headers.get("content-type") == PROBLEM


def _array(values: Iterable[bytes]) -> bytes:
    return b"[" + b",".join(values) + b"]"
