"""The job of the drill poison-code fails by what it is sent, until it is mended."""

import re

import pytest
from millrace_jobs.declared import loader
from millrace_jobs.quarantine.store import is_of_values
from pyspark.errors import ArithmeticException
from pyspark.sql import SparkSession

from millrace.common.paths import REPO
from tests.jobs.running import job_of, records
from tests.jobs.samples import EVENT, STREAM, settings_of

TEXT = (REPO / "runbooks" / "poison-code.md").read_text()
SETTINGS = settings_of("shares", like="sessions", session_gap_seconds=0)


def test_the_drills_job_fails_by_a_status_and_its_checkpoint_bears_the_mended_one(
    spark: SparkSession,
) -> None:
    [query] = re.findall(r"<<'SQL'\n(.*?)SQL\n", TEXT, re.DOTALL)
    [(wrong, right)] = re.findall(r"sed -i 's/(.*?)/(.*?)/'", TEXT)
    assert wrong in query
    mended = query.replace(wrong, right)
    before, after = (
        job_of(spark, "shares", [STREAM], SETTINGS, loader.query("shares", text))
        for text in (query, mended)
    )
    assert before.output.state == after.output.state
    poison = [records(spark, [EVENT | {"status": 599, "bytes": 5}], STREAM.topic)]
    with pytest.raises(ArithmeticException) as raised:
        before.transform(poison).collect()
    assert is_of_values(raised.value)
    [row] = after.transform(poison).collect()
    assert (row.status, row.requests, row.shares) == (599, 1, None)
