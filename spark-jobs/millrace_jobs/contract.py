"""What a job's checkpoint can't change: a version that has it otherwise can't go on from there.

Free of Spark, because the gateway compares contracts on edge hosts, before it touches anything:
`PYTHONPATH=millrace_jobs.zip python -m millrace_jobs.contract insights.json`. The tests compare
what stands here with what Spark writes into a checkpoint.
"""

import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from millrace_jobs.kinds import kind_of, read_settings
from millrace_jobs.settings import JobSettings
from millrace_jobs.stream import Stream


def contract(job: str, settings: JobSettings, streams: Sequence[Stream]) -> dict[str, Any]:
    """By name, everything that must stay. ``checkpoint`` is the folder that it holds for.

    ``streams`` are those that the job reads: the checkpoint holds the offsets of their topics, and
    what is in a topic was written by one schema.
    """
    topics = (stream.topic for stream in streams)
    common = {"checkpoint": settings.checkpoint, "topic": ", ".join(topics)}
    common |= {f"schema of {one.name}": one.avro_schema for one in streams if one.avro_schema}
    frozen: dict[str, Any] = kind_of(job, settings.trigger).frozen(settings, streams)
    return common | frozen


def of(content: dict[str, Any]) -> dict[str, dict[str, Any]]:
    """The contracts of a deployment's configuration, by job."""
    contracts = {}
    for job in content["jobs"]:
        settings = read_settings(job, content["settings"]["common"] | content["settings"][job])
        streams = [Stream.of(name, content["streams"][name]) for name in settings.stream_names]
        contracts[job] = contract(job, settings, streams)
    return contracts


if __name__ == "__main__":
    print(json.dumps(of(json.loads(Path(sys.argv[1]).read_text()))))
