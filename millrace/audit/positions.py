"""How far the jobs are, and waiting for them: an audit reads what has come to rest."""

import json
import time
from collections.abc import Callable, Mapping
from functools import cached_property

import numpy as np

from millrace.cluster import kafka, zookeeper
from millrace.cluster.hdfs import Hdfs
from millrace.cluster.insight_api import InsightApi
from millrace.common.errors import OperatorError
from millrace.common.waiting import wait_until
from millrace.plan import Plan


class Positions:
    """Args: ``api`` tells of batches; by default the service's own."""

    def __init__(self, plan: Plan, hdfs: Hdfs, api: InsightApi | None = None) -> None:
        self._plan = plan
        self._hdfs = hdfs
        self._api = api or InsightApi(plan)

    @cached_property
    def _admin(self) -> kafka.AdminClient:
        return kafka.connect(self._plan)

    def ends(self, topic: str, partitions: int) -> np.ndarray:
        """Up to where a ``read_committed`` reader can read each partition."""
        return np.array(kafka.require_ends(self._admin, topic, partitions))

    def ends_of(self, stream: str) -> np.ndarray:
        topic = self._plan.streams[stream].topic
        return self.ends(topic, self._plan.topics[topic].partitions)

    def event_ends(self) -> np.ndarray:
        """Returns the ends of the stream that jobs read unless they say another."""
        return self.ends_of(self._plan.spark.settings.common.stream)

    def wait_for(self, job: str, ends: Mapping[str, np.ndarray], deadline: float) -> None:
        """Until all before ``ends``, which are by stream, is in the job's results, and its late
        events are counted."""
        self._wait(lambda: self._is_at(job, ends), deadline, job)

    def wait_for_archive(self, stream: str, ends: np.ndarray, deadline: float) -> None:
        job = self._plan.spark.settings.archive_job(stream)
        self._wait(lambda: bool((self.archived(stream, len(ends)) >= ends).all()), deadline, job)

    def _wait(self, check: Callable[[], bool], deadline: float, job: str) -> None:
        if check():
            return
        if job in zookeeper.disabled(self._plan):
            raise OperatorError(
                f"job {job} is disabled and has not taken in all events",
                f"`millrace jobs enable {job}` lets it catch up; then audit again",
            )
        if not wait_until(check, deadline - time.monotonic()):
            raise OperatorError(
                f"job {job} has not taken in all events yet",
                "--wait gives it longer; `millrace status` shows whether it runs",
            )

    def _is_at(self, job: str, ends: Mapping[str, np.ndarray]) -> bool:
        """The job commits its position with its results, and notes there which batch that was."""
        try:
            committed = kafka.positions(self._plan, job)
        except kafka.KafkaException:
            return False
        read = {(position.topic, position.partition): position.offset for position in committed}
        wanted = {
            (self._plan.streams[stream].topic, partition): end
            for stream, partitions in ends.items()
            for partition, end in enumerate(partitions)
        }
        if any(read.get(place, 0) < end for place, end in wanted.items() if end):
            return False
        batch = max(
            int(position.metadata.split()[1]) for position in committed if position.metadata
        )
        return int(self._api.progress(job).get("batch", -1)) >= batch

    def archived(self, stream: str, partitions: int) -> np.ndarray:
        """Returns what the last finished batch of the stream's archive ended with, by its
        checkpoint."""
        settings = self._plan.spark.settings
        checkpoint = settings.job(settings.archive_job(stream)).checkpoint
        path = f"{settings.common.checkpoints}/{checkpoint}"
        finished = [int(name) for name in self._hdfs.names(f"{path}/commits") if name.isdecimal()]
        if not finished:
            return np.zeros(partitions, np.int64)
        entry = self._hdfs.read(f"{path}/offsets/{max(finished)}").decode()
        ends = json.loads(entry.splitlines()[2])[self._plan.streams[stream].topic]
        return np.array([ends.get(str(partition), 0) for partition in range(partitions)])
